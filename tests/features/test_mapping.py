"""Features on the disk: the same bytes for whoever asks, fitted on nothing private, whole or not
there."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError
from m2fdp.features import maps, recipe
from m2fdp.features.config import FeaturesConfig
from m2fdp.features.maps import MAPS, network_source
from m2fdp.features.recipe import fitted_on, input_shape, map_records


@pytest.fixture(autouse=True)
def few_public_images(monkeypatch):
    monkeypatch.setattr(recipe, "N_PUBLIC", 150)


def records(n=60, size=(12, 9), channels=1, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(256, size=(n, *size, channels), dtype=np.uint8)
    return Dataset("npz", images, np.arange(n) % 3, n_train=n - 10, n_classes=3)


def config_in(folder: Path, **changes) -> FeaturesConfig:
    usual = {"map": "scattering", "dimension": 20, "folder": str(folder)}
    return FeaturesConfig(**usual | changes)


@pytest.mark.parametrize(
    ("name", "size", "channels"),
    [
        (name, size, channels)
        for name, maps in MAPS.items()
        for size, channels in [((12, 9), 1), ((28, 28), 1), ((17, 96), 3)]
        if all(channels in map_.channels for map_ in maps)
    ],
)
def test_every_map_takes_its_channels_in_any_size(tmp_path, name, size, channels):
    config = config_in(tmp_path, map=name)
    dataset = records(12, size, channels)
    mapped = map_records(dataset, config)
    assert mapped.shape == input_shape(config, dataset.shape) == (20, 1, 1)
    assert mapped.images.shape == (12, 1, 1, 20)
    assert mapped.images.dtype == np.float32
    assert np.square(mapped.images).sum(axis=3) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(mapped.labels, dataset.labels)


def test_pixels_stay_what_they_are(tmp_path):
    dataset, config = records(), config_in(tmp_path, map="pixels")
    assert map_records(dataset, config) is dataset
    assert input_shape(config, dataset.shape) == dataset.shape
    assert fitted_on(config) == {}
    assert list(tmp_path.iterdir()) == []


def test_what_is_on_the_disk_is_not_computed_again_and_gives_the_same_bytes(tmp_path, monkeypatch):
    config = config_in(tmp_path)
    first = map_records(records(), config).images
    monkeypatch.setattr(recipe.Recipe, "fit", None)
    monkeypatch.setattr(recipe.Fit, "__call__", None)
    assert map_records(records(), config).images.tobytes() == first.tobytes()
    # Another ridge needs nothing new either, and gives other features.
    ridge = map_records(records(), config_in(tmp_path, ridge=0.5)).images
    assert not np.allclose(ridge, first, atol=1e-3)


def test_weights_by_invariance_need_no_new_components(tmp_path, monkeypatch):
    by_variance = map_records(records(), config_in(tmp_path)).images
    files = set(tmp_path.glob("*.npy"))
    config = config_in(tmp_path, weights="invariance")
    first = map_records(records(), config).images
    assert not np.allclose(first, by_variance, atol=1e-3)
    assert set(tmp_path.glob("*.npy")) == files
    monkeypatch.setattr(recipe.Recipe, "fit_moved", None)
    assert map_records(records(), config).images.tobytes() == first.tobytes()


@pytest.mark.parametrize("name", ["scattering", "patches", "contrastive"])
@pytest.mark.parametrize("weights", ["variance", "invariance"])
def test_no_byte_depends_on_workers(tmp_path, name, weights):
    changes = {"map": name, "weights": weights}
    one = map_records(records(), config_in(tmp_path / "one", **changes), workers=1)
    two = map_records(records(), config_in(tmp_path / "two", **changes), workers=3)
    assert one.images.tobytes() == two.images.tobytes()


def test_a_records_features_depend_on_no_other_record(tmp_path):
    """Neither through what is fitted nor through normalisation: one record moves its row alone."""
    config, dataset = config_in(tmp_path, map="all", weights="invariance"), records()
    changed = dataset.images.copy()
    changed[7] = 255 - changed[7]
    before = map_records(dataset, config).images
    after = map_records(replace(dataset, images=changed), config).images
    different = np.flatnonzero((before != after).any(axis=(1, 2, 3)))
    assert different.tolist() == [7]
    one_image = map_records(replace(dataset, images=dataset.images[7:8]), config).images
    assert one_image[0] == pytest.approx(before[7], abs=1e-5)


def test_one_fit_serves_every_data_set_of_a_shape(tmp_path):
    config = config_in(tmp_path)
    map_records(records(seed=0), config)
    map_records(records(seed=1), config)
    assert len(list(tmp_path.glob("fit-*.pt"))) == 1
    assert len(list(tmp_path.glob("[!.]*.npy"))) == 2


def test_what_a_map_was_fitted_on_is_told_by_name_and_digest():
    sources = fitted_on(FeaturesConfig(map="patches"))
    assert list(sources) == ["scikit-learn china.jpg", "scikit-learn flower.jpg"]
    assert all(len(digest) == 32 for digest in sources.values())
    assert fitted_on(FeaturesConfig(map="all")) == sources | network_source()


def test_images_without_contrast_are_mapped_too(tmp_path):
    dataset = records(n=60)
    flat = np.zeros_like(dataset.images)
    flat[30:] = 200
    mapped = map_records(replace(dataset, images=flat), config_in(tmp_path, map="all")).images
    assert np.isfinite(mapped).all()
    assert np.square(mapped).sum(axis=3).max() <= 1 + 1e-5


def test_progress_counts_all_records(tmp_path):
    told = []
    told_of = lambda done, total: told.append((done, total))  # noqa: E731
    map_records(records(), config_in(tmp_path), workers=2, on_chunk=told_of)
    assert told == [(25, 60), (50, 60), (60, 60)]


@pytest.mark.parametrize(("side", "at_once"), [(8, 25), (32, 25), (64, 6), (128, 1)])
def test_of_large_images_fewer_are_in_memory_at_once(tmp_path, monkeypatch, side, at_once):
    told = []
    config = config_in(tmp_path, dimension=5)
    monkeypatch.setattr(recipe, "N_PUBLIC", 10)
    map_records(records(30, (side, side)), config, on_chunk=lambda done, total: told.append(done))
    assert told[0] == at_once
    assert told[-1] == 30


def _map(folder, queue):
    recipe.N_PUBLIC = 150
    queue.put(map_records(records(), config_in(folder)).images.tobytes())


def test_two_processes_at_once_compute_once(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_map, args=(tmp_path, queue)) for _ in range(3)]
    for process in processes:
        process.start()
    results = {queue.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(results) == 1
    assert len(list(tmp_path.glob("[!.]*.npy"))) == 1


def _map_for_ever(folder, began):
    recipe.N_PUBLIC = 150

    def on_chunk(done, total):
        began.set()
        time.sleep(60)

    map_records(records(), config_in(folder), on_chunk=on_chunk)


def test_what_a_killed_process_left_is_taken_away_and_made_anew(tmp_path):
    context = multiprocessing.get_context("fork")
    began = context.Event()
    process = context.Process(target=_map_for_ever, args=(tmp_path, began))
    process.start()
    assert began.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert list(tmp_path.glob("[!.]*.npy")) == []
    assert len(list(tmp_path.glob(".*.npy"))) == 1
    mapped = map_records(records(), config_in(tmp_path)).images
    assert np.square(mapped).sum(axis=3) == pytest.approx(1, abs=1e-5)
    assert list(tmp_path.glob(".*.npy")) == []


def _of_another_shape(file):
    with file.open("wb") as stream:
        np.save(stream, np.zeros((60, 19), dtype=np.float32))


DAMAGES = {
    "halved": lambda file: os.truncate(file, file.stat().st_size // 2),
    "overwritten": lambda file: file.write_bytes(b"PK\x03\x04" + b"x" * 500),
    "of another shape": _of_another_shape,
}


@pytest.mark.parametrize("which", ["fit-*.pt", "[!.]*.npy"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_made_anew(tmp_path, which, damage):
    config = config_in(tmp_path)
    first = map_records(records(), config).images
    (file,) = tmp_path.glob(which)
    content = file.read_bytes()
    damage(file)
    # Other records, for which the fit is read but no components are there.
    map_records(records(seed=1), config)
    assert map_records(records(), config).images.tobytes() == first.tobytes()
    assert file.read_bytes() == content


def test_a_changed_byte_of_a_fit_is_noticed(tmp_path):
    config = config_in(tmp_path)
    map_records(records(), config)
    (file,) = tmp_path.glob("fit-*.pt")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    map_records(records(), config)
    assert file.read_bytes() != content


def test_what_is_there_needs_no_lock(tmp_path):
    """So a folder will do that others have filled and that can't be written to."""
    config = config_in(tmp_path)
    first = map_records(records(), config).images
    for lock in tmp_path.glob("*.lock"):
        lock.unlink()
        lock.mkdir()
    assert map_records(records(), config).images.tobytes() == first.tobytes()


def test_components_of_another_kind_of_device_are_not_taken(tmp_path, monkeypatch):
    """They are rounded otherwise: a result would depend on who came first."""
    map_records(records(), config_in(tmp_path))
    monkeypatch.setattr(recipe.Fit, "on", lambda fit, device: 1 / 0)
    map_records(records(), config_in(tmp_path), device="cpu")
    with pytest.raises(ZeroDivisionError):
        map_records(records(), config_in(tmp_path), device="cuda:0")


def test_public_images_are_read_once(tmp_path):
    """What is fitted is kept under the digest of the images that it was fitted on."""
    first, second = np.random.default_rng(0).random((2, 100, 12, 9))
    file = tmp_path / "own.npz"
    np.savez(file, x=first)
    config = config_in(tmp_path, public=str(file))
    first_recipe, second_recipe = (recipe.recipe_of(config, (1, 12, 9)) for _ in range(2))
    (expected,) = second_recipe.fit()
    assert first_recipe.key == second_recipe.key
    np.savez(file, x=second)
    (fit,) = first_recipe.fit()
    assert fit.state["mean"].tolist() == expected.state["mean"].tolist()
    assert recipe.recipe_of(config, (1, 12, 9)).key != first_recipe.key


def test_an_error_ends_the_computing_at_once(tmp_path, monkeypatch):
    computed, fit = [], recipe.Fit.__call__
    monkeypatch.setattr(
        recipe.Fit, "__call__", lambda self, images: computed.append(1) or fit(self, images)
    )

    def on_chunk(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        map_records(records(n=5000), config_in(tmp_path), on_chunk=on_chunk)
    assert len(computed) < 100
    assert list(tmp_path.glob("*.npy")) == []


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="tells of mapped files")
def test_no_file_is_mapped_into_memory(tmp_path):
    """Where a disk is full, writing to one ends the process by a signal, without a line."""
    mapped = []

    def on_chunk(done, total):
        mapped.append(str(tmp_path) in Path("/proc/self/maps").read_text(encoding="utf-8"))

    map_records(records(), config_in(tmp_path), on_chunk=on_chunk)
    assert mapped == [False] * 3


def test_a_full_disk_ends_in_one_line(tmp_path, small_files):
    with small_files(), pytest.raises(InputError, match="can't be written to") as error:
        map_records(records(), config_in(tmp_path))
    assert error.value.key == "features.folder" and "\n" not in str(error.value)
    assert [file.suffix for file in tmp_path.iterdir()] == [".lock"]


def test_a_folder_may_be_below_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    map_records(records(), config_in("~/kept"))
    assert len(list((tmp_path / "kept").glob("*.npy"))) == 1


def test_public_images_that_are_all_alike_end_in_one_line(tmp_path):
    images = np.random.default_rng(0).random((1, 12, 9)).repeat(100, axis=0)
    np.savez(tmp_path / "own.npz", x=images)
    for name in ("scattering", "patches", "contrastive"):
        config = config_in(tmp_path, map=name, public=str(tmp_path / "own.npz"))
        with pytest.raises(InputError, match=r"hardly differ.*; valid: ") as error:
            map_records(records(), config)
        assert error.value.key == "features.public"


@pytest.mark.parametrize(
    ("changes", "size", "channels", "key", "part"),
    [
        ({}, (7, 28), 1, "features.map", "8 to 128 pixels a side; these have 7 x 28"),
        ({}, (28, 129), 1, "features.map", "8 to 128 pixels a side; these have 28 x 129"),
        ({}, (28, 28), 4, "features.map", "images of 1 or 3 channels; these have 4"),
        ({"map": "all"}, (28, 28), 3, "features.map", "images of 1 channel; these have 3"),
        ({"map": "contrastive"}, (28, 28), 3, "features.map", "of 1 channel; these have 3"),
        ({"dimension": 325}, (8, 8), 1, "features.dimension", "valid: 1 to 324, or null"),
        ({"dimension": 150}, (28, 28), 1, "features.public", "150 images, too few to fit 150"),
        ({"map": "both", "dimension": 1}, (8, 8), 1, "features.dimension", "valid: 2 to 648"),
        ({"map": "both", "dimension": 649}, (8, 8), 1, "features.dimension", "valid: 2 to 648"),
        ({"public": "none.npz"}, (28, 28), 1, "features.public", "no such file; valid: leaves"),
    ],
)
def test_what_can_not_be_mapped_ends_in_one_line(tmp_path, changes, size, channels, key, part):
    with pytest.raises(InputError) as error:
        map_records(records(size=size, channels=channels), config_in(tmp_path, **changes))
    assert error.value.key == key
    assert part in str(error.value) and "\n" not in str(error.value)
    assert list(tmp_path.glob("[!.]*.npy")) == []


def test_a_folder_that_can_not_be_written_to_ends_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be written to"):
        map_records(records(), config_in(tmp_path / "file" / "below"))


@pytest.mark.parametrize(
    ("module", "part", "other"),
    [
        (maps, "network_source", lambda: {"another network": "0"}),
        (recipe, "_code", lambda: b"changed"),
        (recipe, "version", lambda library: "0"),
    ],
)
def test_features_of_another_network_or_code_are_not_taken(
    tmp_path, monkeypatch, module, part, other
):
    config = config_in(tmp_path, map="contrastive")
    map_records(records(), config)
    monkeypatch.setattr(module, part, other)
    map_records(records(), config)
    assert len(list(tmp_path.glob("[!.]*.npy"))) == 2
