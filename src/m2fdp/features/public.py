"""Images that are nobody's records, for features to be fitted on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path

import numpy as np

from m2fdp.core.data.dataset import features
from m2fdp.core.errors import InputError
from m2fdp.features import leaves as made
from m2fdp.features.drawings import drawings, font_source
from m2fdp.sources.arrays import is_file, read_images

# Nobody's privacy depends on it: what it draws is public.
_SEED = 20_111
_AT_A_TIME = 100  # crops


@dataclass(frozen=True)
class PublicImages:
    """What a feature map may be fitted on.

    Attributes:
        sources: what the images are made of, by name, with a digest of its bytes; of a generator
            its name and parameters.
        draw: (count, (C, H, W)) to float32 (at most count, C, H, W) in [0, 1]; always the same.
    """

    sources: dict[str, str]
    draw: Callable[[int, tuple[int, int, int]], np.ndarray]


def public_images(name: str) -> PublicImages:
    """The source of public images of that name: one of `GENERATED`, or a file `.npz`.

    Raises:
        InputError: no such file, or no images in it.
    """
    return GENERATED[name]() if name in GENERATED else _of_file(name)


def _of_file(file: str) -> PublicImages:
    """A user's own images, of the data set's shape."""
    refuse = partial(InputError, "features.public", file)
    if not is_file(file):
        raise refuse(f"no such file; valid: {', '.join(GENERATED)}, or a file .npz")
    images = read_images("features.public", file, "x")
    channels_first = features(images)

    def draw(count: int, shape: tuple[int, int, int]) -> np.ndarray:
        if channels_first.shape[1:] != shape:
            height, width, channels = images.shape[1:]
            raise refuse(
                f"holds images of {height} x {width} pixels and {channels} channels; valid: those "
                f"of the data set, {shape[1]} x {shape[2]} and {shape[0]}"
            )
        return channels_first[:count]

    return PublicImages({Path(file).name: _digest(images)}, draw)


# --- photographs -------------------------------------------------------------------------


@cache
def _photographs() -> PublicImages:
    """The two photographs that scikit-learn bundles: a Chinese temple and a flower."""
    from sklearn.datasets import load_sample_images

    bundled = load_sample_images()
    pictures = bundled.images
    sources = {
        f"scikit-learn {Path(file).name}": _digest(picture)
        for file, picture in zip(bundled.filenames, pictures, strict=True)
    }
    return PublicImages(sources, lambda count, shape: crops(pictures, count, shape))


def _leaves() -> PublicImages:
    """Random pictures (`leaves`): no real image, and nobody's."""
    recipe = blake2b(Path(made.__file__).read_bytes(), digest_size=16).hexdigest()
    return PublicImages(
        {f"leaves by a program, seed {_SEED}": recipe},
        lambda count, shape: made.leaves(count, shape, np.random.default_rng(_SEED)),
    )


def _drawings() -> PublicImages:
    """Things filled with leaves or plainly, characters, lines, and leaves."""
    shares = "a quarter of things, slabs and characters, an eighth of lines and leaves"
    described = {"drawings on black": f"{shares}, seed {_SEED}"}
    filling = _leaves()

    def draw(count: int, shape: tuple[int, int, int]) -> np.ndarray:
        return drawings(filling.draw(count, shape), np.random.default_rng(_SEED))

    return PublicImages(described | font_source() | filling.sources, draw)


def crops(pictures: Sequence[np.ndarray], count: int, shape: tuple[int, int, int]) -> np.ndarray:
    """Rectangles of random place and size of random pictures, made small by averaging.

    Args:
        pictures: uint8 (height, width, 3), no side smaller than the crop's.
        shape: (C, H, W) of a crop, which shows that size of its picture or more, each scale
            equally often. A grey one is the mean of the colours.

    Returns:
        float32 (count, C, H, W) in [0, 1].
    """
    rng = np.random.default_rng(_SEED)
    channels, *sides = shape
    drawn = rng.integers(len(pictures), size=count)
    places = rng.random((count, 3))
    result = np.empty((count, *shape), dtype=np.float32)
    for number, picture in enumerate(pictures):
        colours = picture.astype(np.int64)
        if channels == 1:
            colours = colours.sum(axis=2, keepdims=True)
        white = 255 * 3 // channels
        sums = np.pad(colours, ((1, 0), (1, 0), (0, 0))).cumsum(axis=0).cumsum(axis=1)
        largest = min(have / want for have, want in zip(picture.shape, sides, strict=False))
        every = np.flatnonzero(drawn == number)
        # Sums have eight bytes each: of few crops at a time they fit beside the images.
        for mine in np.split(every, range(_AT_A_TIME, len(every), _AT_A_TIME)):
            scales = largest ** places[mine, 0]
            rows, columns = (
                _edges(place, scales, have, want)
                for place, have, want in zip(places[mine, 1:].T, picture.shape, sides, strict=False)
            )
            corners = sums[rows[:, :, None], columns[:, None, :]]
            boxes = np.diff(np.diff(corners, axis=1), axis=2)
            areas = np.diff(rows)[:, :, None] * np.diff(columns)[:, None, :]
            result[mine] = (boxes / (white * areas[..., None])).transpose(0, 3, 1, 2)
    return result


def _edges(places: np.ndarray, scales: np.ndarray, have: int, want: int) -> np.ndarray:
    """Where the cells of crops begin and end along one side: int (n, want + 1)."""
    lengths = np.maximum((scales * want).astype(int), want)
    starts = (places * (have - lengths + 1)).astype(int)
    return starts[:, None] + lengths[:, None] * np.arange(want + 1) // want


# The sources that need no file.
GENERATED: Mapping[str, Callable[[], PublicImages]] = {
    "leaves": _leaves,
    "photographs": _photographs,
    "drawings": _drawings,
}


def _digest(images: np.ndarray) -> str:
    shape = f"{images.dtype}{images.shape}".encode()
    return blake2b(shape + np.ascontiguousarray(images).tobytes(), digest_size=16).hexdigest()
