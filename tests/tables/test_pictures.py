"""Pictures of a user's own: folders and tables of them, what they become, what bad ones get."""

import base64
import io

import mlflow
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

from m2fdp import Experiment, load_config
from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.pipelines.logged_models import ServableModelDataset
from m2fdp.pipelines.training import package_model
from m2fdp.program import main
from m2fdp.tables import pictures
from m2fdp.tables.pictures import decoded, listed


def pixels_of(number: int, side: int = 8) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (side, side), dtype=np.uint8)


def save(path, number: int = 0, side: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels_of(number, side)).save(path)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project's root, with pictures of two classes in two shops."""
    (tmp_path / "pyproject.toml").touch()
    for n in range(40):
        save(tmp_path / f"goods/{'AB'[n % 2]}/{'xy'[n // 2 % 2]}/{n:02}.png", n)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(main, arguments)


def test_two_commands_lead_from_a_folder_to_a_model_that_takes_pictures(project):
    told = run("data", "describe", "goods", "--label=folder2", "--client=folder1")
    assert told.exit_code == 0, told.output
    assert "8 x 8 pixels, grey" in told.output
    keys = {"features.dimension": 12, "training.rounds": 2}
    schema = project / "conf" / "goods" / "schema.yml"
    schema.write_text(schema.read_text().replace(", confirmed: false", ""))
    experiment = Experiment.from_config(load_config(project / "conf" / "goods", keys))
    assert experiment.plan.network.tree.names == (("cloud",), ("A", "B"))
    assert experiment.summary()["guarantee"] == "verified"
    trained = experiment.train()
    packed = package_model(experiment, trained.state_dict, trained.metrics, experiment.summary())
    ServableModelDataset(path="data/06_models/single/mlflow_model").save(packed)
    answers = run("predict", "single", "goods")
    assert answers.exit_code == 0, answers.output
    rows = pd.read_csv(io.StringIO(answers.output))
    assert list(rows) == ["label", "x", "y"] and len(rows) == 40
    served = mlflow.pyfunc.load_model("data/06_models/single/mlflow_model")
    sent = pd.DataFrame({"file_name": [base64.b64encode(png(n)).decode() for n in (0, 1)]})
    assert served.predict(sent)["label"].tolist() == [
        rows["label"][listed(project / "goods")["file_name"].tolist().index(name)]
        for name in ("A/x/00.png", "B/x/01.png")
    ]
    # What the run says of its test records.
    found = experiment.evaluate(trained.state_dict).predictions.tolist()
    said = dict(zip(listed(project / "goods")["file_name"], rows["label"], strict=True))
    by_pixels = {pixels_of(n).tobytes(): n for n in range(40)}
    tested = [by_pixels[image.tobytes()] for image in experiment.dataset.images[-len(found) :]]
    names = [f"{'AB'[n % 2]}/{'xy'[n // 2 % 2]}/{n:02}.png" for n in tested]
    assert [said[name] for name in names] == ["xy"[label] for label in found]


def test_folders_become_columns(tmp_path):
    for name in ("train/x/1.png", "train/y/deep/2.png", "test/x/3.png", "test/y/4.png"):
        save(tmp_path / name)
    (tmp_path / "train" / "notes.txt").touch()
    assert listed(tmp_path).to_dict("list") == {
        "file_name": ["test/x/3.png", "test/y/4.png", "train/x/1.png", "train/y/deep/2.png"],
        "split": ["test", "test", "train", "train"],
        "folder1": ["x", "y", "x", "y"],
    }


def test_a_table_names_pictures_beside_it(project):
    rows = [{"file_name": f"{n}.png", "kind": "xy"[n % 2], "age": n % 7 * 1.5} for n in range(20)]
    for n, row in enumerate(rows):
        save(project / "named" / row["file_name"], n)
    pd.DataFrame(rows).to_csv(project / "named" / "metadata.csv", index=False)
    told = run("data", "describe", "named", "--label=kind")
    assert "ignored: pictures stand" in told.output
    config = load_config(project / "conf" / "named")
    images = load_dataset(config.dataset, project).images
    assert images.dtype == np.uint8
    assert {image.tobytes() for image in images} == {pixels_of(n).tobytes() for n in range(20)}


def png(number: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels_of(number)).save(stream, "PNG")
    return stream.getvalue()


CELLS = {
    "a file": lambda folder: "7.png",
    "bytes": lambda folder: png(7),
    "as Hugging Face stores them": lambda folder: {"bytes": png(7), "path": "7.png"},
    "base64": lambda folder: base64.b64encode(png(7)).decode(),
}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_a_cell_names_or_holds_a_picture(tmp_path, cell):
    save(tmp_path / "7.png", 7)
    shown, closed = decoded(pd.Series([cell(tmp_path)]), (8, 8, 1), tmp_path, None)
    assert not closed.any() and np.array_equal(shown[0, :, :, 0], pixels_of(7))


def test_pictures_are_brought_to_the_shape(tmp_path):
    Image.new("RGB", (20, 10), (255, 0, 0)).save(tmp_path / "red.png")
    Image.fromarray(np.full((8, 8), 40_000, dtype=np.uint16)).save(tmp_path / "deep.png")
    cells = pd.Series(["red.png", "deep.png"])
    coloured, _ = decoded(cells, (4, 6, 3), tmp_path, None)
    assert coloured.shape == (2, 4, 6, 3) and (coloured[0] == [255, 0, 0]).all()
    grey, _ = decoded(cells, (4, 6, 1), tmp_path, None)
    assert set(grey[0].flat) == {76} and set(grey[1].flat) == {40_000 >> 8}  # 0.299 of red


def test_pictures_are_decoded_once_and_again_when_they_change(tmp_path, monkeypatch):
    save(tmp_path / "1.png", 1)
    arguments = pd.Series(["1.png"]), (8, 8, 1), tmp_path, tmp_path / "store"
    first, _ = decoded(*arguments)
    with monkeypatch.context() as no_more:
        no_more.setattr(pictures, "_opened", None)
        assert np.array_equal(decoded(*arguments)[0], first)
    save(tmp_path / "1.png", 2)
    assert np.array_equal(decoded(*arguments)[0][0, :, :, 0], pixels_of(2))


def broken(folder):
    (folder / "y" / "0.png").write_bytes(b"\x89PNG and then nothing")


BAD_FOLDERS = {
    "an empty class": (lambda f: (f / "z").mkdir(), "the folder z holds no picture"),
    "a picture that can't be opened": (broken, "file_name: 'y/0.png' is no picture that can be"),
    "no folders": (
        lambda f: [path.rename(f / f"{n}.png") for n, path in enumerate(f.rglob("*.png"))],
        "lacks the column folder1 of the schema; it has file_name",
    ),
    "a class without pictures": (
        lambda f: (f / "schema.yml").write_text(
            "label: {column: folder1, classes: [x, y, z]}\n"
            "columns: {file_name: {image: [8, 8, 1]}}\n"
        ),
        "no training record of the class z",
    ),
}


@pytest.mark.parametrize(("change", "line"), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
def test_bad_folders_are_refused_in_one_line(tmp_path, change, line):
    for n in range(8):
        save(tmp_path / "xy"[n % 2] / f"{n // 2}.png", n)
    schema = tmp_path / "schema.yml"
    schema.write_text(
        "label: {column: folder1, classes: [x, y]}\ncolumns: {file_name: {image: [8, 8, 1]}}\n"
    )
    change(tmp_path)
    config = DatasetConfig(name="table", root=str(tmp_path), schema=str(schema))
    with pytest.raises(InputError) as refused:
        load_dataset(config, tmp_path / "store")
    assert line in str(refused.value) and "\n" not in str(refused.value)


BAD_SCHEMAS = {
    "a picture and a number": (
        "columns: {file_name: {image: [8, 8, 1]}, age: {range: [0, 1]}}",
        "stands alone",
    ),
    "two channels": ("columns: {file_name: {image: [8, 8, 2]}}", "should be 1 or 3"),
    "a missing picture": ("columns: {file_name: {image: [8, 8, 1], missing: []}}", "be missing"),
    "a wrong key": ("columns: {file_name: {imago: [8, 8, 1]}}", "did you mean image?"),
}


@pytest.mark.parametrize(("columns", "line"), BAD_SCHEMAS.values(), ids=BAD_SCHEMAS)
def test_bad_schemas_are_refused_in_one_line(tmp_path, columns, line):
    schema = tmp_path / "schema.yml"
    schema.write_text(f"label: {{column: folder1, classes: [x, y]}}\n{columns}\n")
    with pytest.raises(InputError, match=line):
        load_dataset(DatasetConfig(name="table", root=str(tmp_path), schema=str(schema)), tmp_path)
