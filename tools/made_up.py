"""Labelled pictures that a program makes: sets on which settings are chosen without any record.

Each set has ten classes. In most of the coloured ones a class is a body with a part on it, before a
ground: outline, texture, colours and ground differ between classes, and by chance inside each. In
`programs` a class is what a small random network makes of a pixel's place. Grey ones are bright on
black: a class is some parts in their places, or two strokes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.ndimage import gaussian_filter

CLASSES, SIDE = 10, 32
_AT_A_TIME = 500
_HARMONICS = np.arange(1, 6)  # of an outline
# Lightness, red against blue, and green against both, each of length one, and how far they vary.
_OPPONENTS = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
_SPREADS = np.array([0.18, 0.08, 0.05])
_GREY = 0.48
_Y, _X = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2.0

Labelled = tuple[np.ndarray, np.ndarray]


def bodies(
    seed: int,
    n: int,
    shape: float,
    texture: float,
    colour: float,
    context: float,
    jitter: float = 1.0,
) -> Labelled:
    """Pictures of bodies, float32 (n, 3, 32, 32) in [0, 1], and their classes, int (n,).

    Args:
        shape: how far classes differ in outlines; 1 is about as far as members of one do.
        texture: how far classes differ in textures, as above.
        colour: how far classes differ in the colours of bodies and parts, as above.
        context: how far classes differ in grounds, as above.
        jitter: how far members of a class differ from each other.
    """
    rng = np.random.default_rng([seed, 77])

    def drawn(scale: float, *size: int) -> np.ndarray:
        return scale * rng.normal(0, 1, (CLASSES, *size))

    def circle(*size: int) -> np.ndarray:
        return rng.uniform(0, 2 * np.pi, (CLASSES, *size))

    count = len(_HARMONICS)
    of_classes = {
        "amplitudes": drawn(0.3 * shape, count) / _HARMONICS,
        "phases": circle(count),
        "aspect": drawn(0.35 * shape),
        "size": drawn(0.1 * shape),
        "part amplitudes": drawn(0.3 * shape, count) / _HARMONICS,
        "part phases": circle(count),
        "direction": circle(),
        "distance": shape * rng.uniform(0, 0.9, CLASSES),
        "part size": drawn(0.3 * shape),
        "frequency": drawn(0.6 * texture),
        "angle": rng.uniform(0, np.pi, CLASSES),
        "width": drawn(0.5 * texture),
        "share": drawn(0.25 * texture),
        "strength": drawn(0.3 * texture),
        "body": drawn(colour, 3),
        "part": drawn(colour, 3),
        "ground": drawn(context, 3),
        "exponent": drawn(0.3 * context),
        "slope": drawn(context, 3),
    }
    labels = rng.integers(CLASSES, size=n)
    images = np.empty((n, 3, SIDE, SIDE), np.float32)
    for start in range(0, n, _AT_A_TIME):
        here = labels[start : start + _AT_A_TIME]

        def member(name: str, scale: float | np.ndarray, here: np.ndarray = here) -> np.ndarray:
            values = of_classes[name][here]
            return values + jitter * scale * rng.normal(size=values.shape)

        images[start : start + _AT_A_TIME] = _members(len(here), member, rng)
    return images, labels


def _members(n: int, member: Callable[..., np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """(n, 3, 32, 32): each a body and a part on it, often something of no class before them."""
    turned, flipped = rng.normal(0, 0.35, n), np.where(rng.random(n) < 0.5, 1, -1)
    size = 9.5 * np.exp(member("size", 0.2))
    down, right = rng.normal(0, 2.5, (2, n))
    x, y = (_X - _maps(right)) * _maps(flipped), _Y - _maps(down)
    cosine, sine = _maps(np.cos(turned)), _maps(np.sin(turned))
    along, across = x * cosine + y * sine, y * cosine - x * sine
    aspect = np.exp(member("aspect", 0.2) / 2)
    along, across = along / _maps(size * aspect), across / _maps(size / aspect)
    body = _inside(along, across, member("amplitudes", 0.15 / _HARMONICS), member("phases", 0.25))
    direction, distance = member("direction", 0.3), 0.6 + member("distance", 0.2)
    smaller = _maps(0.55 * np.exp(member("part size", 0.25)))
    part = smaller * _inside(
        (along - _maps(distance * np.cos(direction))) / smaller,
        (across - _maps(distance * np.sin(direction))) / smaller,
        member("part amplitudes", 0.15 / _HARMONICS),
        member("part phases", 0.25),
    )
    body, part = (np.clip(0.5 + each * _maps(size), 0, 1)[:, None] for each in (body, part))
    texture = textured(
        rng,
        np.clip(0.15 * np.exp(member("frequency", 0.35)), 0.03, 0.5),
        member("angle", 0.35) + turned,
        np.clip(0.5 * np.exp(member("width", 0.4)), 0.05, 3),
        np.full(n, 1.5),
        np.clip(0.5 + member("share", 0.2), 0, 1),
    )
    strength = np.clip(0.5 * np.exp(member("strength", 0.4)), 0, 1.5)
    light = 1 + _maps(rng.normal(0, 0.25, n)) * along * 0.7
    light = (light + _maps(rng.normal(0, 0.25, n)) * across * 0.7)[:, None]

    def paint(name: str, scale: float) -> np.ndarray:
        return (_GREY + (member(name, scale) * _SPREADS) @ _OPPONENTS * 1.2)[:, :, None, None]

    ground = paint("ground", 1.2)
    slope = ((member("slope", 1.0) * _SPREADS * 0.6) @ _OPPONENTS)[:, :, None, None]
    images = ground + slope * (_Y / 16)
    directions, exponents = rng.uniform(0, np.pi, n), 1.5 + member("exponent", 0.3)
    rough = textured(
        rng,
        np.full(n, 0.1),
        directions,
        np.full(n, 3.0),
        np.clip(exponents, 0.6, 2.6),
        np.full(n, 0.15),
    )
    images = images + 0.10 * rough[:, None] * _maps(rng.uniform(0.2, 1.8, n))[:, None]
    grain = (0.14 * _maps(strength) * texture)[:, None]
    for mask, name in ((body, "body"), (part, "part")):
        images = images * (1 - mask) + mask * (paint(name, 1.0) + grain) * light
    seen = rng.random(n) < 0.4
    places, radii = rng.uniform(-18, 18, (2, n)), rng.uniform(2, 7, n)
    reach = np.hypot(_X - _maps(places[0]), (_Y - _maps(places[1])) * 1.6)
    before = ((reach < _maps(radii)) & _maps(seen))[:, None]
    colours = (_GREY + (rng.normal(size=(n, 3)) * _SPREADS * 1.3) @ _OPPONENTS)[:, :, None, None]
    images = np.where(before, colours, images)
    contrasts = rng.lognormal(0, 0.2, n)[:, None, None, None]
    images = (images - _GREY) * contrasts + _GREY + rng.normal(0, 0.06, n)[:, None, None, None]
    for image in images:
        width = rng.uniform(0.2, 0.8)
        image[:] = gaussian_filter(image, (0, width, width))
    return np.clip(images + rng.normal(0, 0.015, images.shape), 0, 1)


def programs(seed: int, n: int) -> Labelled:
    """Pictures (n, 3, 32, 32) by small networks whose weights lie near those of their class."""
    rng, width, near = np.random.default_rng([seed, 79]), 8, 0.45
    first = rng.normal(size=(CLASSES, width, 4)) * 1.3
    second = rng.normal(size=(CLASSES, width, width)) / np.sqrt(width) * 1.5
    third = rng.normal(size=(CLASSES, 3, width)) / np.sqrt(width)
    labels = rng.integers(CLASSES, size=n)
    images = np.empty((n, 3, SIDE, SIDE), np.float32)
    for start in range(0, n, _AT_A_TIME):
        here = labels[start : start + _AT_A_TIME]
        m = len(here)
        angle, zoom = rng.normal(0, 0.5, m), _maps(np.exp(rng.normal(0.4, 0.3, m)) / 10)
        x = _X - _maps(rng.normal(0, 5, m))
        x = x * _maps(np.where(rng.random(m) < 0.5, 1, -1))
        y = _Y - _maps(rng.normal(0, 5, m))
        cosine, sine = _maps(np.cos(angle)), _maps(np.sin(angle))
        along, across = (x * cosine + y * sine) * zoom, (y * cosine - x * sine) * zoom
        places = np.stack([along, across, np.hypot(along, across), np.ones_like(along)], 1)

        def own(weights: np.ndarray, scale: float, here: np.ndarray = here) -> np.ndarray:
            values = weights[here]
            return values + near * rng.normal(size=values.shape) * scale

        hidden = np.sin(own(first, 1.0) @ places.reshape(m, 4, -1))
        hidden = np.tanh(own(second, 1.5 / np.sqrt(width)) @ hidden * 1.5)
        made = (own(third, 1.5 / np.sqrt(width)) @ hidden).reshape(m, 3, SIDE, SIDE)
        made *= np.array([0.22, 0.1, 0.06])[:, None, None]
        made = np.einsum("nohw,oc->nchw", made, _OPPONENTS) * 1.3
        directions, exponents = rng.uniform(0, 3, m), rng.uniform(1, 2, m)
        fine = np.full(m, 0.1)
        rough = textured(rng, fine, directions, np.full(m, 3.0), exponents, fine)
        made = _GREY + made + 0.08 * rough[:, None] + rng.normal(0, 0.06, (m, 1, 1, 1))
        images[start : start + m] = np.clip(made + rng.normal(0, 0.015, made.shape), 0, 1)
    return images, labels


def textured(
    rng: np.random.Generator,
    frequency: np.ndarray,
    angle: np.ndarray,
    width: np.ndarray,
    exponent: np.ndarray,
    share: np.ndarray,
) -> np.ndarray:
    """Fields (n, 32, 32): noise of one band of frequencies, a `share`, and 1/f^a noise."""
    rows, columns = np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None]
    radius, direction = np.hypot(rows, columns)[None], np.arctan2(rows, columns)[None]
    apart = np.abs((direction - _maps(angle) + np.pi / 2) % np.pi - np.pi / 2)
    nearness = -(np.log((radius + 1e-3) / _maps(frequency)) ** 2) / 0.4
    band = np.exp(nearness - apart**2 / (2 * _maps(width) ** 2))
    rough = np.maximum(radius, 1 / SIDE) ** -_maps(exponent)
    fields = np.zeros((len(frequency), SIDE, SIDE))
    for amplitudes, weight in ((band, share), (rough, 1 - share)):
        amplitudes[:, 0, 0] = 0
        white = np.fft.rfft2(rng.standard_normal(fields.shape))
        field = np.fft.irfft2(white * amplitudes, s=(SIDE, SIDE))
        fields += _maps(weight) * field / field.std((1, 2), keepdims=True)
    return fields


def _inside(x: np.ndarray, y: np.ndarray, amplitudes: np.ndarray, phases: np.ndarray) -> np.ndarray:
    """Positive inside an outline of radius one whose harmonics are given, negative outside."""
    waves = _HARMONICS[:, None, None] * np.arctan2(y, x)[:, None] + phases[:, :, None, None]
    return 1 + (amplitudes[:, :, None, None] * np.cos(waves)).sum(1) - np.hypot(x, y)


def _maps(values: np.ndarray) -> np.ndarray:
    """Values (n,) of pictures, to meet (n, H, W)."""
    return np.asarray(values)[:, None, None]


SETS: Mapping[str, Callable[[int], Labelled]] = {
    "shapes": lambda n: bodies(1, n, shape=1.6, texture=0.4, colour=0.4, context=0.2),
    "textures": lambda n: bodies(2, n, shape=0.4, texture=1.6, colour=0.4, context=0.4),
    "palettes": lambda n: bodies(3, n, shape=0.6, texture=0.6, colour=1.0, context=0.8),
    "all": lambda n: bodies(4, n, shape=1, texture=1, colour=0.7, context=0.5, jitter=1.2),
    "programs": lambda n: programs(5, n),
    "all again": lambda n: bodies(
        6, n, shape=1.2, texture=0.8, colour=0.6, context=0.6, jitter=1.2
    ),
}

GREY_SIDE = 28
_GREY_Y, _GREY_X = (np.mgrid[:GREY_SIDE, :GREY_SIDE] - (GREY_SIDE - 1) / 2.0) / (GREY_SIDE / 2)
# Points of a stroke, and their weights.
_CORNERS, _ALONG = 4, np.linspace(0, 1, 40)[:, None]
_BEZIER = np.hstack(
    [(1 - _ALONG) ** 3, 3 * _ALONG * (1 - _ALONG) ** 2, 3 * _ALONG**2 * (1 - _ALONG), _ALONG**3]
)


def things(
    seed: int,
    n: int,
    parts: int = 4,
    near: float = 0.35,
    texture: float = 1.0,
    likeness: float = 0.5,
) -> Labelled:
    """Pictures of parts in their places, float32 (n, 1, 28, 28) in [0, 1], and classes, int (n,).

    Args:
        near: how far members of a class differ, in units of how far classes do.
        texture: how strong textures are.
        likeness: the share of their variance in which classes 2k and 2k + 1 are alike.
    """
    rng = np.random.default_rng([seed, 83])
    # How many of each a class has, and how far classes differ in them.
    spreads = {
        "x": (parts, 0.35),
        "y": (parts, 0.45),
        "width": (parts, 0.35),
        "height": (parts, 0.4),
        "angle": (parts, 0.5),
        "power": (parts, 0.5),
        "grey": (parts, 0.6),
        "frequency": (1, 0.6),
        "direction": (1, 1.0),
        "strength": (1, 0.6),
    }
    of_classes = {}
    for name, (count, spread) in spreads.items():
        alike = np.repeat(rng.normal(size=(CLASSES // 2, count)), 2, axis=0)
        apart = rng.normal(size=(CLASSES, count))
        of_classes[name] = spread * (np.sqrt(likeness) * alike + np.sqrt(1 - likeness) * apart)
    labels = rng.integers(CLASSES, size=n)
    images = np.empty((n, 1, GREY_SIDE, GREY_SIDE), np.float32)
    for image, label in zip(images, labels, strict=True):
        member = {
            name: of_classes[name][label] + near * spread * rng.normal(size=count)
            for name, (count, spread) in spreads.items()
        }
        image[0] = _thing(member, texture, rng)
    return images, labels


def _thing(
    member: Mapping[str, np.ndarray], texture: float, rng: np.random.Generator
) -> np.ndarray:
    """One picture (28, 28): a large part in the middle, and others about it or on it."""
    tilt, zoom = rng.normal(0, 0.06), np.exp(rng.normal(0, 0.06))
    x = (_GREY_X * np.cos(tilt) + _GREY_Y * np.sin(tilt)) / zoom - rng.normal(0, 0.04)
    y = (_GREY_Y * np.cos(tilt) - _GREY_X * np.sin(tilt)) / zoom - rng.normal(0, 0.04)
    direction = member["direction"][0]
    wave = 6 * np.exp(member["frequency"][0]) * (x * np.cos(direction) + y * np.sin(direction))
    wave = np.sin(2 * (wave + rng.uniform(0, 6.3)))
    rough = gaussian_filter(rng.normal(size=x.shape), 0.8)
    grain = 1 + texture * (0.25 * np.exp(member["strength"][0]) * wave + 0.1 * rough)
    image = np.zeros_like(x)
    for part in range(len(member["x"])):
        distance, size = (0.3, (0.5, 0.6)) if part == 0 else (1.0, (0.3, 0.35))
        width, height = size * np.exp([member["width"][part], member["height"][part]])
        right, down = distance * member["x"][part], distance * member["y"][part]
        angle, power = 0.4 * member["angle"][part], 2 + 2 * np.exp(member["power"][part])
        u = ((x - right) * np.cos(angle) + (y - down) * np.sin(angle)) / width
        v = ((y - down) * np.cos(angle) - (x - right) * np.sin(angle)) / height
        inside = 1 - (np.abs(u) ** power + np.abs(v) ** power) ** (1 / power)
        mask = np.clip(0.5 + inside * min(width, height) * GREY_SIDE / 2, 0, 1)
        if part == 3:  # which is seen on the others alone
            mask = mask * (image > 0)
        lightness = 1 / (1 + np.exp(-0.6 - 1.2 * member["grey"][part]))
        image = image * (1 - mask) + mask * lightness
    return np.clip(gaussian_filter(image * np.clip(grain, 0, 2), 0.3), 0, 1)


def writing(seed: int, n: int, near: float = 0.3, likeness: float = 0.4) -> Labelled:
    """Pictures of two strokes, as `things`: classes differ in the points that strokes follow."""
    rng = np.random.default_rng([seed, 89])
    alike = np.repeat(rng.normal(size=(CLASSES // 2, 2, _CORNERS, 2)), 2, axis=0)
    apart = rng.normal(size=(CLASSES, 2, _CORNERS, 2))
    of_classes = 0.5 * (np.sqrt(likeness) * alike + np.sqrt(1 - likeness) * apart)
    labels = rng.integers(CLASSES, size=n)
    images = np.empty((n, 1, GREY_SIDE, GREY_SIDE), np.float32)
    places = np.stack([_GREY_X, _GREY_Y], axis=-1)[:, :, None]
    for image, label in zip(images, labels, strict=True):
        points = of_classes[label] + 0.5 * near * rng.normal(size=(2, _CORNERS, 2))
        strokes = (_BEZIER @ points).reshape(-1, 2)
        strokes[:, 0] += rng.normal(0, 0.15) * strokes[:, 1]
        low, high = strokes.min(axis=0), strokes.max(axis=0)
        strokes = (strokes - (low + high) / 2) / max(high - low) * 1.35
        strokes = strokes * np.exp(rng.normal(0, 0.06)) + rng.normal(0, 0.05, 2)
        distances = np.sqrt(((places - strokes) ** 2).sum(-1)).min(-1)
        width = 0.09 * np.exp(rng.normal(0, 0.25))
        ink = np.clip(0.5 + (width - distances) * GREY_SIDE / 2, 0, 1)
        image[0] = ink * rng.uniform(0.8, 1)
    return images, labels


GREY_SETS: Mapping[str, Callable[[int], Labelled]] = {
    "things": lambda n: things(1, n),
    "things of more parts": lambda n: things(2, n, parts=6, near=0.45),
    "textures": lambda n: things(3, n, texture=2.0, likeness=0.9, near=0.3),
    "writing": lambda n: writing(4, n),
    "writing, alike": lambda n: writing(5, n, near=0.4, likeness=0.7),
}
