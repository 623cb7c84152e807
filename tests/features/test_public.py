"""Public images: always the same, of the asked size, and what a user's own must be."""

import numpy as np
import pytest

from m2fdp.core.errors import InputError
from m2fdp.features.leaves import leaves
from m2fdp.features.public import crops, public_images

GENERATED = ["leaves", "photographs", "drawings"]


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 20, 33)])
def test_images_are_of_the_asked_size_and_show_something(name, shape):
    images = public_images(name).draw(60, shape)
    assert images.shape == (60, *shape)
    assert images.dtype == np.float32
    assert 0 <= images.min() < images.max() <= 1
    assert images.std(axis=(1, 2, 3)).min() > 0
    assert np.array_equal(images, public_images(name).draw(60, shape))


def test_a_crop_is_the_mean_of_what_it_shows():
    picture = np.random.default_rng(0).integers(256, size=(8, 8, 3), dtype=np.uint8)
    # As large as the picture, there is one crop only.
    (whole,) = crops([picture], 1, (3, 8, 8))
    assert whole == pytest.approx(picture.transpose(2, 0, 1) / 255, abs=1e-6)
    grey = crops([picture], 50, (1, 1, 1))
    means = {
        round(float(picture[i : i + n, j : j + n].mean() / 255), 5)
        for n in range(1, 9)
        for i in range(9 - n)
        for j in range(9 - n)
    }
    assert {round(float(value), 5) for value in grey.ravel()} <= means
    assert len(np.unique(grey)) > 20


def test_leaves_have_edges_of_every_size_and_the_spectrum_of_nature():
    """Power falls with frequency like 1/f^2 to 1/f^3.6, the lower end that of nature, blurred; no
    picture is like another; and few neighbours differ much, most hardly."""
    pictures = leaves(700, (3, 32, 32), np.random.default_rng(0))
    grey = pictures.mean(axis=1) - pictures.mean(axis=(1, 2, 3))[:, None, None]
    power = (np.abs(np.fft.rfft2(grey * np.hanning(32)[:, None] * np.hanning(32))) ** 2).mean(0)
    frequencies = np.arange(2, 13)
    slope, _ = np.polyfit(np.log(frequencies), np.log(power[0, 2:13] + power[2:13, 0]), 1)
    assert -3.6 < slope < -2
    steps = np.abs(np.diff(grey, axis=2))
    assert np.median(steps) < 0.02 < 0.1 < np.quantile(steps, 0.97)
    closest = np.abs(np.corrcoef(grey.reshape(700, -1)) - np.eye(700)).max()
    assert closest < 0.98


def test_no_leaf_depends_on_how_many_pictures_follow():
    longer = leaves(510, (3, 16, 16), np.random.default_rng(1))
    same = np.array_equal(longer[:500], leaves(500, (3, 16, 16), np.random.default_rng(1)))
    assert same


def test_an_own_file_is_taken_as_it_is_and_told_by_its_content(tmp_path):
    images = np.random.default_rng(0).integers(256, size=(5, 9, 8), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", x=images)
    own_images = public_images(str(tmp_path / "own.npz"))
    assert own_images.draw(3, (1, 9, 8)) == pytest.approx(images[:3, None] / 255)
    assert list(own_images.sources) == ["own.npz"]
    np.savez(tmp_path / "other.npz", x=images[::-1])
    other = public_images(str(tmp_path / "other.npz"))
    assert set(other.sources.values()) != set(own_images.sources.values())


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ({"y": np.zeros(3)}, "lacks x"),
        ({"x": np.zeros((3, 9, 8))}, "one colour each"),
        ({"x": np.linspace(0, 1, 3)[:, None, None].repeat(9, 1).repeat(8, 2)}, "one colour each"),
        ({"x": np.random.default_rng(0).random((3, 9))}, "has shape (3, 9)"),
    ],
)
def test_what_is_no_image_ends_in_one_line(tmp_path, arrays, part):
    file = tmp_path / "own.npz"
    np.savez(file, **arrays)
    with pytest.raises(InputError) as error:
        public_images(str(file))
    assert (error.value.key, error.value.value) == ("features.public", str(file))
    assert part in str(error.value) and "\n" not in str(error.value)


def test_own_images_of_another_size_end_in_one_line(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.random.default_rng(0).random((3, 9, 8)))
    own_images = public_images(str(tmp_path / "own.npz"))
    with pytest.raises(InputError, match="9 x 8 pixels and 1 channels; valid: those of the data"):
        own_images.draw(3, (3, 9, 8))


@pytest.mark.parametrize("name", ["photos", "", "n" * 300, "~nobody-of-that-name/own.npz"])
def test_a_name_that_is_no_file_says_what_there_is(name):
    with pytest.raises(InputError, match="no such file") as error:
        public_images(name)
    assert "leaves, photographs, drawings" in str(error.value)
