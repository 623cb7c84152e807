"""Public images that are records: found in whatever form, and nothing else is."""

import numpy as np
import pytest
from tests.builders import experiment_of

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.features.run import looks, refuse_records


@pytest.fixture(scope="module")
def digits():
    return load_dataset(DatasetConfig())


def others(n=20):
    return np.random.default_rng(0).random((n, 8, 8, 1)).astype(np.float32)


def unit_norm(images):
    return images / np.linalg.norm(images, axis=(1, 2), keepdims=True)


FORMS = {
    "as they are": lambda images: images,
    "float64": lambda images: images.astype(np.float64),
    "without channels": lambda images: images[..., 0],
    "of length one": unit_norm,
    "darker, on grey": lambda images: images * 0.3 + 0.1,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sample", [0, 1437, 1796])
def test_one_record_among_public_images_is_refused(tmp_path, digits, form, sample):
    """A training or a test record, at whatever scale."""
    file = str(tmp_path / "own.npz")
    images = np.concatenate([others(), digits.images[[sample]]])
    np.savez(file, x=FORMS[form](images))
    with pytest.raises(InputError, match="holds 1 of the 1797 records of digits") as error:
        refuse_records(file, digits)
    assert (error.value.key, error.value.value) == ("features.public", file)
    assert f"such as sample {sample}:" in str(error.value) and "\n" not in str(error.value)


def test_images_that_are_no_record_pass(tmp_path, digits):
    """Generated ones, others, others of another size, and blank ones, which tell of nobody."""
    changed = digits.images.copy()
    changed[:, 4, 4] = (changed[:, 4, 4] + 0.4) % 1
    for number, images in enumerate((others(), changed, digits.images[:, :7])):
        file = str(tmp_path / f"{number}.npz")
        np.savez(file, x=np.concatenate([images, np.zeros_like(images[:1])]))
        refuse_records(file, digits)
    for name in ("leaves", "photographs", "drawings"):
        refuse_records(name, digits)


def test_bytes_and_floats_of_random_images_look_alike():
    """Of any contrast: grey levels are never close to where they are cut."""
    rng = np.random.default_rng(1)
    images = (
        rng.integers(256, size=(300, 8, 8, 1)) * rng.integers(1, 256, size=(300, 1, 1, 1)) // 255
    )
    verdicts = list(looks(images.astype(np.uint8)))
    assert len(set(verdicts)) > 290
    for form in ("float64", "of length one", "darker, on grey"):
        assert list(looks(FORMS[form]((images / 255).astype(np.float32)))) == verdicts


def test_an_experiment_refuses_them_before_anything_is_computed(tmp_path, digits):
    file = str(tmp_path / "own.npz")
    np.savez(file, x=digits.images[:30])
    folder = tmp_path / "features"
    features = {"map": "scattering", "public": file, "folder": str(folder), "dimension": 20}
    with pytest.raises(InputError, match="^features.public = .*: holds 30 of the 1797 records"):
        experiment_of({"features": features}).check()
    assert not folder.exists()


def test_a_file_of_the_data_set_itself_is_refused(tmp_path, digits):
    file = str(tmp_path / "own.npz")
    np.savez(file, x=digits.images)
    with pytest.raises(InputError, match="holds 1797 of the 1797 records"):
        refuse_records(file, digits)
