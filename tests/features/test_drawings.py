"""Drawings: what they show, and that fonts that are used again leave no trace."""

import numpy as np
import pytest
import torch

from m2fdp.features import drawings
from m2fdp.features.drawings import deformed


def test_characters_are_letters_and_signs_of_whole_fonts_and_no_digits():
    fonts = drawings._fonts()
    assert len(fonts) >= 10
    for _, characters in fonts:
        assert {"a", "Z", "ß", "Ж", "+"} <= set(characters)
        assert not any(character.isnumeric() for character in characters)


def test_characters_do_not_depend_on_what_was_drawn_before():
    first = drawings._characters(20, (28, 28), np.random.default_rng(3))
    drawings._characters(5, (40, 33), np.random.default_rng(4))
    assert np.array_equal(first, drawings._characters(20, (28, 28), np.random.default_rng(3)))


def test_a_character_keeps_its_ink_inside_the_image():
    (drawn,) = drawings._characters(50, (28, 28), np.random.default_rng(0))
    assert drawn.shape == (50, 1, 28, 28)
    assert drawn.sum(axis=(1, 2, 3)).min() > 5
    # Deformed by little enough that the corners stay black.
    assert np.median(drawn[:, 0, [0, 0, -1, -1], [0, -1, 0, -1]]) == 0


@pytest.mark.parametrize("part", [0, 1])
def test_things_and_slabs_show_nothing_but_their_textures(part):
    """Black textures, brightened by shading, stay darker than white ones."""
    n = 800
    white = drawings.drawings(np.ones((n, 1, 28, 28)), np.random.default_rng(1))
    black = drawings.drawings(np.zeros((n, 1, 28, 28)), np.random.default_rng(1))
    here = slice(part * n // 4, (part + 1) * n // 4)
    assert (black[here] <= white[here]).all()
    assert (black[here] < white[here]).any(axis=(1, 2, 3)).mean() > 0.3
    # Shared outlines: what is black in white textures is black in all.
    assert not black[here][white[here] == 0].any()


def test_about_six_of_ten_outlines_are_symmetric():
    masks = drawings._blob(300, (28, 28), np.random.default_rng(0))
    symmetric = np.abs(masks - masks[..., ::-1]).max(axis=(1, 2, 3)) < 1e-6
    assert 0.5 < symmetric.mean() < 0.72


def test_lines_and_textures_are_the_last_two_eighths():
    textures = np.random.default_rng(2).random((80, 1, 28, 28)).astype(np.float32)
    images = drawings.drawings(textures, np.random.default_rng(1))
    assert np.array_equal(images[70:], textures[70:])
    assert not np.array_equal(images[60:70], textures[60:70])


def test_what_is_drawn_again_has_the_same_outlines_and_other_shades():
    rng = np.random.default_rng(1)
    first, second = drawings.drawn_again([np.ones((400, 1, 28, 28))] * 2, rng)
    filled = slice(0, 200)  # things and slabs
    assert np.array_equal(first[filled] > 0, second[filled] > 0)
    assert (first[filled] != second[filled]).any(axis=(1, 2, 3)).mean() > 0.5
    assert np.array_equal(first[300:], second[300:])  # lines and textures


def test_a_character_that_is_drawn_again_is_more_like_itself_than_like_others():
    first, second = drawings._characters(200, (28, 28), np.random.default_rng(0), times=2)[:, :, 0]
    apart = np.abs(first - second).mean(axis=(1, 2))
    from_others = np.abs(first - np.roll(second, 1, axis=0)).mean(axis=(1, 2))
    assert apart.min() > 0
    assert apart.mean() < 0.9 * from_others.mean()


def test_a_character_is_drawn_again_in_fonts_that_have_it():
    for character in ("a", "Ж", "∮"):
        fonts = drawings._fonts_of(character)
        assert fonts and all(character in map(chr, font.get_charmap()) for font in fonts)


def discs(n=40, channels=1, side=28):
    """A bright disc in the middle of each, with the same grey edge around."""
    rows, columns = np.ogrid[:side, :side]
    disc = (np.hypot(rows - side / 2, columns - side / 2) < side / 4) * 0.8 + 0.1
    return torch.as_tensor(np.broadcast_to(disc, (n, channels, side, side)).copy()).float()


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32), (1, 9)])
def test_images_stay_images(channels, side):
    moved = deformed(discs(channels=channels, side=side), np.random.default_rng(0))
    assert moved.shape == (40, channels, side, side)
    assert moved.dtype == torch.float32
    assert moved.min() >= 0
    assert moved.max() <= 1


def test_each_is_moved_a_little_and_otherwise():
    images = discs()
    moved = deformed(images, np.random.default_rng(0))
    differences = (moved - images).abs().mean(dim=(1, 2, 3))
    assert differences.min() > 0.005
    # An image of another thing, here of nothing, is farther away.
    assert differences.max() < (images - 0.1).abs().mean()
    assert len({image.numpy().tobytes() for image in moved}) == len(moved)


def test_the_edge_goes_on_outside():
    """A plain image has no edge to see, wherever it is moved to; contrast changes it as a whole."""
    plain = torch.full((10, 1, 28, 28), 0.5)
    moved = deformed(plain, np.random.default_rng(0))
    assert moved.amax(dim=(1, 2, 3)) == pytest.approx(moved.amin(dim=(1, 2, 3)), abs=1e-5)


def test_the_same_draws_give_the_same_bytes():
    first, second = (deformed(discs(), np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(first, second)
