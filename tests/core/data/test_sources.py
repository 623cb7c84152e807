"""Loading: tiny files in torchvision's layout, a user's arrays, every way they can be wrong, and
labelled images that are nobody's records."""

import gzip
import io
import pickle
import subprocess
import sys
import tarfile
import zipfile
from hashlib import md5
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from m2fdp import load_config
from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import features
from m2fdp.core.data.sources import N_CLASSES, load_dataset
from m2fdp.core.errors import InputError
from m2fdp.sources import digits as digits_file
from m2fdp.sources import synthetic
from m2fdp.sources.torchvision import import_datasets

datasets = import_datasets()
# Two letters that differ from their own transposes: a top row (label 1) and a left column.
TOP_ROW = np.zeros((28, 28), dtype=np.uint8)
TOP_ROW[0] = 200


def load(name, root, tmp_path, download=False):
    return load_dataset(
        DatasetConfig(name=name, root=str(root), download=download), tmp_path / "unpacked"
    )


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def idx(array: np.ndarray) -> bytes:
    """The MNIST family's format: type 8 (uint8), the shape, the bytes."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def digest(path) -> str:
    return md5(path.read_bytes()).hexdigest()


def tree(root) -> dict:
    return {p.relative_to(root): p.stat().st_mtime_ns for p in root.rglob("*")}


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise URLError("the network is off")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


def mnist_files() -> dict[str, bytes]:
    images = np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256
    return {
        "train-images-idx3-ubyte": idx(images),
        "train-labels-idx1-ubyte": idx(np.array([3, 0, 9])),
        "t10k-images-idx3-ubyte": idx(images[:2]),
        "t10k-labels-idx1-ubyte": idx(np.array([1, 1])),
    }


@pytest.fixture
def mnist_archives(tmp_path, monkeypatch):
    """A root that holds only MNIST's four archives, with the MD5s torchvision is made to expect."""
    packed = {f"{name}.gz": gzip.compress(content) for name, content in mnist_files().items()}
    raw = write(tmp_path / "root/MNIST/raw", packed)
    resources = [(name, digest(raw / name)) for name in packed]
    monkeypatch.setattr(datasets.MNIST, "resources", resources)
    return tmp_path / "root"


def test_digits_hold_every_fifth_record_out_wherever_scikit_learn_keeps_them(monkeypatch):
    from sklearn.datasets import load_digits

    digits, original = load_dataset(DatasetConfig()), load_digits()
    assert digits.images.shape == (1797, 8, 8, 1)
    assert digits.images.dtype == np.float32
    assert digits.n_train == 1438
    is_test = np.arange(1797) % 5 == 4
    np.testing.assert_array_equal(digits.labels[1438:], original.target[is_test])
    np.testing.assert_array_equal(digits.images[:1438, ..., 0] * 16, original.images[~is_test])
    assert digits.images.max() == 1
    digits_file._read_digits.cache_clear()
    monkeypatch.setattr(digits_file, "_DIGITS", "nowhere.csv.gz")
    other = load_dataset(DatasetConfig())
    assert other.images.tobytes() == digits.images.tobytes()
    assert other.labels.tobytes() == digits.labels.tobytes()


def test_unpacked_files_are_read_where_they_lie(tmp_path, no_network):
    write(tmp_path / "root/MNIST/raw", mnist_files())
    before = tree(tmp_path)
    mnist = load("mnist", tmp_path / "root", tmp_path)
    assert tree(tmp_path) == before
    assert mnist.images.shape == (5, 28, 28, 1)
    assert mnist.images.dtype == np.uint8
    assert mnist.images[1, 0, 5, 0] == (28 * 28 + 5) % 256
    assert mnist.labels.tolist() == [3, 0, 9, 1, 1]
    assert (mnist.n_train, mnist.n_classes) == (3, 10)


def test_archives_are_unpacked_elsewhere_and_the_root_is_not_written_to(
    mnist_archives, tmp_path, no_network
):
    before = tree(mnist_archives)
    first = load("mnist", mnist_archives, tmp_path)
    reloaded = load("mnist", mnist_archives, tmp_path)
    assert tree(mnist_archives) == before
    assert first.labels.tolist() == [3, 0, 9, 1, 1]
    np.testing.assert_array_equal(first.images, reloaded.images)
    file_names = sorted(p.name for p in (tmp_path / "unpacked").rglob("*") if not p.is_dir())
    assert file_names == sorted(mnist_files())


def test_a_wrong_archive_is_refused_without_reaching_for_the_network(
    mnist_archives, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "urllib.request.urlopen", lambda *a, **k: pytest.fail("reached for the network")
    )
    (mnist_archives / "MNIST/raw/t10k-labels-idx1-ubyte.gz").write_bytes(b"not the archive")
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte\.gz has the wrong MD5"):
        load("mnist", mnist_archives, tmp_path)


@pytest.mark.parametrize("name", [n for n in N_CLASSES if n != "digits"])
def test_missing_files_are_named_with_both_remedies(name, tmp_path):
    with pytest.raises(InputError) as caught:
        load(name, tmp_path / "nowhere", tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    assert str(tmp_path / "nowhere") in line
    assert "dataset.download=true" in line and "copy" in line
    expected = {
        "mnist": ["MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/t10k-labels-idx1-ubyte.gz"],
        "fashion_mnist": ["FashionMNIST/raw/t10k-images-idx3-ubyte"],
        "emnist_letters": ["EMNIST/raw/emnist-letters-test-labels-idx1-ubyte", "gzip.zip"],
        "cifar10": ["cifar-10-batches-py/data_batch_5", "cifar-10-python.tar.gz"],
        "cifar100": ["cifar-100-python/train", "cifar-100-python.tar.gz"],
    }
    assert all(file in line for file in expected[name])
    assert list(tmp_path.iterdir()) == []


def test_only_missing_files_are_named(tmp_path):
    write(tmp_path / "MNIST/raw", {"train-images-idx3-ubyte": b""})
    with pytest.raises(InputError) as caught:
        load("mnist", tmp_path, tmp_path)
    assert "train-images-idx3-ubyte," not in str(caught.value).split("not found")[0]


def test_a_failed_download_is_one_line_and_leaves_no_file(tmp_path, no_network):
    with pytest.raises(InputError, match="the network is off") as caught:
        load("mnist", tmp_path / "root", tmp_path, download=True)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "root").rglob("*")) == []


def test_a_download_that_breaks_off_leaves_no_file(tmp_path, monkeypatch):
    def break_off(url, root, filename=None, md5=None):
        Path(root, filename).write_bytes(b"half")
        raise URLError("connection lost")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", break_off)
    with pytest.raises(InputError, match="could not download"):
        load("cifar10", tmp_path / "root", tmp_path, download=True)
    assert list((tmp_path / "root").rglob("*")) == []


def test_damaged_unpacked_files_are_refused(tmp_path):
    files = mnist_files()
    files["train-images-idx3-ubyte"] = files["train-images-idx3-ubyte"][:-1]
    write(tmp_path / "root/MNIST/raw", files)
    with pytest.raises(InputError, match="files in .* are damaged"):
        load("mnist", tmp_path / "root", tmp_path)


@pytest.mark.parametrize(
    ("labels", "message"), [([3, 0], "differ in number"), ([3, 0, 10], "not one of the 10")]
)
def test_labels_that_do_not_belong_to_the_images_are_refused(labels, message, tmp_path):
    files = mnist_files() | {"train-labels-idx1-ubyte": idx(np.array(labels))}
    write(tmp_path / "root/MNIST/raw", files)
    with pytest.raises(InputError, match=message):
        load("mnist", tmp_path / "root", tmp_path)


def emnist_files() -> dict[str, bytes]:
    """Images as the files hold them, transposed: a bar on the left is a letter's top row."""
    stored = np.stack([TOP_ROW.T, TOP_ROW.T, TOP_ROW])
    return {
        "emnist-letters-train-images-idx3-ubyte": idx(stored),
        "emnist-letters-train-labels-idx1-ubyte": idx(np.array([1, 26, 2])),
        "emnist-letters-test-images-idx3-ubyte": idx(stored[:1]),
        "emnist-letters-test-labels-idx1-ubyte": idx(np.array([5])),
    }


@pytest.mark.parametrize("archived", [False, True])
def test_emnist_letters_are_upright(archived, tmp_path, monkeypatch, no_network):
    raw = write(tmp_path / "root/EMNIST/raw", {} if archived else emnist_files())
    if archived:
        with zipfile.ZipFile(raw / "gzip.zip", "w") as archive:
            for name, content in emnist_files().items():
                archive.writestr(f"gzip/{name}.gz", gzip.compress(content))
            archive.writestr("gzip/emnist-digits-mapping.txt", "0 48")
        monkeypatch.setattr(datasets.EMNIST, "md5", digest(raw / "gzip.zip"))
    letters = load("emnist_letters", tmp_path / "root", tmp_path)
    assert letters.images.shape == (4, 28, 28, 1)
    np.testing.assert_array_equal(letters.images[0, ..., 0], TOP_ROW)
    np.testing.assert_array_equal(letters.images[2, ..., 0], TOP_ROW.T)
    assert letters.labels.tolist() == [0, 25, 1, 4]
    assert (letters.n_train, letters.n_classes) == (3, 26)
    unpacked = {p.name for p in (tmp_path / "unpacked").rglob("*") if p.is_file()}
    assert unpacked == (set(emnist_files()) if archived else set())


def cifar100_files() -> dict[str, bytes]:
    """Rows of 3072 bytes: the red plane, then green, then blue."""
    pixels = np.repeat(np.array([[10, 20, 30]], dtype=np.uint8), 1024, axis=1)
    return {
        "train": pickle.dumps({"data": np.vstack([pixels, pixels + 1]), "fine_labels": [99, 0]}),
        "test": pickle.dumps({"data": pixels, "fine_labels": [42]}),
        "meta": pickle.dumps({"fine_label_names": [str(i) for i in range(100)]}),
    }


@pytest.mark.parametrize("archived", [False, True])
def test_cifar100(archived, tmp_path, monkeypatch, no_network):
    files, root = cifar100_files(), tmp_path / "root"
    sums = {name: md5(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(datasets.CIFAR100, "train_list", [["train", sums["train"]]])
    monkeypatch.setattr(datasets.CIFAR100, "test_list", [["test", sums["test"]]])
    monkeypatch.setitem(datasets.CIFAR100.meta, "md5", sums["meta"])
    root.mkdir()
    if archived:
        path = root / "cifar-100-python.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(f"cifar-100-python/{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        monkeypatch.setattr(datasets.CIFAR100, "tgz_md5", digest(path))
    else:
        write(root / "cifar-100-python", files)
    before = tree(root)
    cifar = load("cifar100", root, tmp_path)
    assert tree(root) == before
    assert cifar.images.shape == (3, 32, 32, 3)
    assert cifar.images[:, 7, 7].tolist() == [[10, 20, 30], [11, 21, 31], [10, 20, 30]]
    assert cifar.labels.tolist() == [99, 0, 42]
    assert (cifar.n_train, cifar.n_classes) == (2, 100)


def test_altered_cifar_files_are_refused(tmp_path):
    # Whose MD5s torchvision does not expect.
    write(tmp_path / "root/cifar-100-python", cifar100_files())
    with pytest.raises(InputError, match="are damaged"):
        load("cifar100", tmp_path / "root", tmp_path)


ARRAYS = {
    "x_train": np.linspace(0, 1, 4 * 6).reshape(4, 2, 3),
    "y_train": np.array([0, 1, 2, 1]),
    "x_test": np.full((2, 2, 3), 0.5),
    "y_test": np.array([2, 0]),
}


def save(tmp_path, **changes):
    path = tmp_path / "own.npz"
    np.savez(path, **{k: v for k, v in (ARRAYS | changes).items() if v is not None})
    return path


def test_npz_takes_grey_floats_and_colour_bytes(tmp_path):
    dataset = load("npz", save(tmp_path), tmp_path)
    assert dataset.images.shape == (6, 2, 3, 1)
    assert dataset.images.dtype == np.float32
    np.testing.assert_allclose(dataset.images[:4, ..., 0], ARRAYS["x_train"], rtol=1e-7)
    assert dataset.labels.tolist() == [0, 1, 2, 1, 2, 0]
    assert (dataset.name, dataset.n_train, dataset.n_classes) == ("npz", 4, 3)
    colour = np.arange(4 * 2 * 3 * 3, dtype=np.uint8).reshape(4, 2, 3, 3)
    coloured = load("npz", save(tmp_path, x_train=colour, x_test=colour[:2]), tmp_path)
    np.testing.assert_array_equal(coloured.images[:4], colour, strict=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None, "y_test": None}, "lacks x_test, y_test"),
        ({"x_train": np.zeros((4, 6))}, r"x_train has shape \(4, 6\)"),
        ({"x_train": np.zeros((0, 2, 3)), "y_train": np.zeros(0, int)}, r"shape \(0, 2, 3\)"),
        ({"x_train": np.zeros((4, 3, 8, 9))}, r"9\), with channels first; valid: NxHxWxC"),
        ({"x_train": np.zeros((4, 2, 3), dtype=np.int64)}, "x_train has type int64"),
        ({"x_train": ARRAYS["x_train"] * 255}, "ranges from 0 to 255"),
        ({"x_train": ARRAYS["x_train"] - 0.5}, "ranges from -0.5 to 0.5"),
        ({"x_test": np.full((2, 2, 3), np.nan)}, "x_test has pixels that are nan"),
        ({"x_test": np.zeros((2, 3, 3))}, "same shape"),
        ({"x_test": np.zeros((2, 2, 3), dtype=np.uint8)}, "same shape and type"),
        ({"y_train": np.array([0, 1, 2])}, r"y_train has shape \(3,\)"),
        ({"y_test": np.array([3, 0])}, "y_test has the label 3"),
        ({"y_test": np.array([-1, 0])}, "y_test has the label -1"),
        ({"y_train": np.array([0, 1, 2, None])}, "not a readable .npz"),
    ],
)
def test_npz_refuses_in_one_line(changes, message, tmp_path):
    path = save(tmp_path, **changes)
    with pytest.raises(InputError, match=message) as caught:
        load("npz", path, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"dataset.root = {str(path)!r}: ")


def test_npz_refuses_what_is_no_npz(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load("npz", tmp_path / "absent.npz", tmp_path)
    (tmp_path / "text.npz").write_text("x_train")
    np.save(tmp_path / "one.npy", np.zeros(3))
    sound = save(tmp_path).read_bytes()
    (tmp_path / "cut.npz").write_bytes(sound[: len(sound) // 2])
    (tmp_path / "table.npz").write_bytes(b"PAR1 and so on")
    for name, kind in (
        ("text.npz", "another kind of file"),
        ("one.npy", "a single array, .npy"),
        ("cut.npz", "BadZipFile"),
        ("table.npz", "Parquet"),
    ):
        with pytest.raises(InputError, match=f"not a readable .npz.*{kind}"):
            load("npz", tmp_path / name, tmp_path)


@pytest.mark.parametrize("beyond", [1 + 2e-7, -2e-7, 1.0000001])
def test_pixels_beyond_the_range_by_rounding_are_put_on_its_border(beyond, tmp_path):
    images = np.full((4, 2, 2), 0.5)
    images[1, 0, 0] = beyond
    dataset = load("npz", save(tmp_path, x_train=images, x_test=images[:2]), tmp_path)
    assert dataset.images[1, 0, 0, 0] == np.clip(beyond, 0, 1)
    with pytest.raises(InputError, match=r"x_train ranges from 0.5 to 1.00001; valid"):
        images[1, 0, 0] = 1.00001
        load("npz", save(tmp_path, x_train=images, x_test=images[:2]), tmp_path)


def test_features_scale_bytes_by_a_constant_and_leave_floats():
    images = np.zeros((2, 4, 5, 3), dtype=np.uint8)
    images[1, 2, 3] = [255, 51, 0]
    scaled = features(images)
    assert scaled.shape == (2, 3, 4, 5)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled[1, :, 2, 3], [1, 0.2, 0], rtol=1e-7)
    floats = np.random.default_rng(0).random((2, 4, 5, 1), dtype=np.float32)
    copy = floats.copy()
    np.testing.assert_array_equal(features(floats)[:, 0], copy[..., 0])
    np.testing.assert_array_equal(floats, copy)


def test_torchvision_imports_beside_any_build_of_torch():
    """First import wins: a fresh process."""
    code = (
        "from m2fdp.sources.torchvision import import_datasets\n"
        "assert import_datasets() is import_datasets()\n"
        "print(import_datasets().FashionMNIST.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "FashionMNIST"


def made(**keys):
    return load_dataset(DatasetConfig(name="synthetic", **keys))


@pytest.mark.parametrize(
    ("shape", "classes"), [([28, 28, 1], 10), ([32, 32, 3], 4), ([9, 12, 1], 26)]
)
def test_they_have_the_shape_and_classes_that_are_asked_for(monkeypatch, shape, classes):
    monkeypatch.setattr(synthetic, "_CLASSES", classes)
    data = made(shape=shape, records=600)
    assert data.images.shape == (700, *shape) and data.images.dtype == np.uint8
    assert (data.n_train, data.n_classes, data.name) == (600, classes, "synthetic")
    assert set(data.labels) == set(range(classes))
    assert 20 < data.images.mean() < 200
    np.testing.assert_array_equal(data.images, made(shape=shape, records=600).images)
    assert not np.array_equal(data.images[0], data.images[1])


@pytest.mark.parametrize("shape", [[28, 28, 1], [32, 32, 3]])
def test_their_classes_can_be_told_apart_but_not_by_a_prototype_alone(monkeypatch, shape):
    monkeypatch.setattr(synthetic, "_CLASSES", 5)
    data = made(shape=shape, records=3000)
    pixels = data.images.reshape(len(data.images), -1).astype(float)
    train, test = pixels[:3000], pixels[3000:]
    means = np.stack([train[data.labels[:3000] == c].mean(axis=0) for c in range(5)])
    nearest = ((test[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    accuracy = (nearest == data.labels[3000:]).mean()
    assert 0.35 < accuracy < 0.98


def test_a_basis_adds_up_inside():
    places = np.linspace(-0.5, 0.5, 7, dtype=np.float32)[None]
    sums = synthetic._basis(places, 10).sum(axis=2)
    np.testing.assert_allclose(sums, sums[0, 0], rtol=1e-5)


@pytest.mark.parametrize("shape", [[28, 28, 2], [28, 28], [28, 28, 0], [200, 28, 1]])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InputError, match=r"dataset\.shape"):
        load_config({"dataset.name": "synthetic", "dataset.shape": shape})
