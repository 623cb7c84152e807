import pytest
from tests.finished import manifest_of

from m2fdp import load_config, progress
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.pipelines import data

MANIFEST = "data/05_model_input/single/manifest.csv"
SPLIT = ("--pipelines=data", "--params", "topology.fanouts=3|2,seed=4")


def test_the_data_pipeline_alone_makes_split_and_figure(finished_run):
    finished = finished_run(*SPLIT)
    manifest = manifest_of(finished.project)
    train = manifest[manifest["split"] == "train"]
    assert sorted(train["device"].unique()) == list(range(6))
    assert (train.groupby("device")["label"].nunique() <= 3).all()
    assert set(manifest.loc[manifest["split"] == "test", "device"]) == {-1}
    figure = finished.project / "data" / "08_reporting" / "single" / "label_distribution.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert finished.run.info.status == "FINISHED"
    files = "label_distribution.png manifest.csv manifest_checks.html configuration.json"
    assert finished.artifacts == set(files.split())


def test_the_split_depends_on_the_seed_alone(project, kedro_run, finished_run):
    contents = []
    for seed in (4, 5):
        params = f"topology.fanouts=3|2,seed={seed}"
        kedro_run("--pipelines", "data", "--params", params, code=0)
        contents.append((project / MANIFEST).read_bytes())
    before = (finished_run(*SPLIT).project / MANIFEST).read_bytes()
    assert before == contents[0] != contents[1]


def test_the_split_of_a_file_of_edges_has_its_names_in_any_order_of_rows(project, kedro_run):
    names = ["007", "010", "None", "b"]
    rows = ["cloud,N", "cloud,S", "N,007", "N,None", "S,b", "S,010"]
    params = "topology.edges=edges.csv,topology.fanouts=null,training.rounds=1,seed=4"
    contents = set()
    for order in (rows, rows[::-1]):
        (project / "edges.csv").write_text("\n".join(["parent,child", *order]) + "\n")
        kedro_run("--pipelines=data", "--params", params, code=0)
        contents.add((project / MANIFEST).read_bytes())
    (content,) = contents
    assert sorted({line.split(b",")[-1].decode() for line in content.split()[1:]}) == ["-1", *names]
    kedro_run("--pipelines=training", "--params", params, code=0)
    (project / MANIFEST).write_bytes(content.replace(b",007\n", b",7\n"))
    result = kedro_run("--pipelines=training", "--params", params, code=2)
    says = "device '7'\": is none of topology's 4; valid: -1 for the cloud, 007, None, 010, b"
    assert says in result.output.splitlines()[-1] and MANIFEST in result.output


def test_an_environment_changes_only_its_own_keys(project, kedro_run):
    local = project / "conf" / "few"
    local.mkdir()
    (local / "parameters.yml").write_text("partition:\n  samples_per_device: 5\n")
    kedro_run("--pipelines", "data", "--env", "few", code=0)
    train = manifest_of(project).query("split == 'train'")
    assert (train.groupby("device").size() == 5).all()
    assert (train.groupby("device")["label"].nunique() <= 3).all()


@pytest.mark.parametrize("suffix", ["", "_pixels"])
@pytest.mark.parametrize(
    "dataset", ["fashion_mnist", "mnist", "emnist_letters", "cifar10", "cifar100"]
)
def test_every_environment_is_valid_and_says_which_files_it_misses(project, dataset, suffix):
    config = load_config(project / "conf" / (dataset + suffix))
    check_config(config)
    with pytest.raises(InputError, match="dataset.root = 'data/01_raw': "):
        data.load(config)


def test_reading_a_large_data_set_says_so_while_it_lasts(monkeypatch, caplog):
    def read(config, seed):
        while not caplog.messages:
            pass
        return "dataset"

    caplog.set_level("INFO", "m2fdp")
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.001)
    monkeypatch.setattr(data, "load_dataset", read)
    assert data.load(Config()) == "dataset"
    assert caplog.messages[0] == "reading and checking digits: 0 s so far"
