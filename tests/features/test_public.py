"""Public images: always the same, of the asked size, and what a user's own must be."""

import numpy as np
import pytest

from m2fdp.core.errors import InputError
from m2fdp.features import public
from m2fdp.features.public import crops, dead_leaves, public_images

GENERATED = ["photographs", "shapes", "drawings", "dead_leaves"]


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 20, 33)])
def test_images_are_of_the_asked_size_and_show_something(name, shape, monkeypatch):
    monkeypatch.setattr(public, "_N_CANVASES", 1)
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


def test_leaves_cover_the_canvas_with_many_colours_and_large_discs():
    picture = dead_leaves(200, np.random.default_rng(0))
    colours, counts = np.unique(picture.reshape(-1, 3), axis=0, return_counts=True)
    assert len(colours) > 200
    assert counts.max() > 500


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
    assert "photographs, shapes, drawings, dead_leaves" in str(error.value)
