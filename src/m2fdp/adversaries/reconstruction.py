"""Reconstruct the images of messages, and say how alike they are to the records that went in."""

import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from math import inf, log10
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

from m2fdp.adversaries.config import AttackConfig
from m2fdp.adversaries.inversion import (
    Knowledge,
    Message,
    invert,
    labels_by_rule,
    search,
    sought_in,
)
from m2fdp.core.files import replacing
from m2fdp.core.formatting import for_json
from m2fdp.core.streams import Streams

# Equal images have no finite ratio; 32 bits tell no more.
_MOST_DECIBELS = 100.0
# Wang et al. 2004: a Gaussian window of 11 pixels, deviation 1.5, and two constants for values in
# [0, 1].
_WINDOW, _DEVIATION = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2
# Pixels are told in so many levels.
_LEVELS = 255

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Kept:
    """Results of an attack that are on the disk, one by one, so that it can go on where it was cut.

    A result has a name, and a digest of all that it follows from. What is read is to the bit what
    was computed.

    Attributes:
        folder: None keeps nothing.
        key: a digest of all that the results follow from.
    """

    folder: Path | None
    key: bytes

    def get(self, name: str, compute: Callable[[], Arrays], premises: bytes = b"") -> Arrays:
        """The result of that name, computed if it is not there whole; `premises` are what it
        follows from besides the key."""
        if self.folder is None:
            return compute()
        digest = blake2b(self.key + b"|" + premises, digest_size=12).hexdigest()
        file = self.folder / f"{name}-{digest}.npz"
        try:
            with np.load(file, allow_pickle=False) as stored:
                return dict(stored)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # not there, or damaged
            result = compute()
        with replacing(file) as unfinished, unfinished.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **result)
        return result

    def clear(self) -> None:
        """Forget all results, of whatever attack: the folder is this one's."""
        if self.folder is not None:
            for file in self.folder.glob("*.npz"):
                file.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class Records:
    """All records of a message's devices, for who judges the attack; no attack sees them. `usual`,
    (C, H, W), is the mean of images that are nobody's: what a guess without a message comes to."""

    images: Tensor
    labels: np.ndarray
    usual: Tensor


def reconstruct(
    message: Message, knowledge: Knowledge, config: AttackConfig, results: Kept, streams: Streams
) -> Iterator[Arrays]:
    """Attack a message from so many starts, drawn by number; see `search` for what each gives. A
    model that the method can't invert is an `InputError`."""
    read = message.update.numpy().tobytes() + message.start.numpy().tobytes()
    exact = config.method == "analytic"
    sought = sought_in(message, knowledge, 1 if exact else config.images)

    def start(number: int) -> Arrays:
        if exact:
            labels = np.array(labels_by_rule(message, knowledge, 1))
            images = invert(message, knowledge, int(labels[0]))[None]
            return {"images": images.numpy(), "labels": labels, "misfit": np.zeros(())}
        stream = streams.generator("attack", number)
        return search(message, knowledge, sought, config, stream)

    for number in range(1 if exact else config.restarts):
        yield results.get(f"start-{number}", partial(start, number), read)


def best_of(starts: Iterable[Arrays], message: Message, records: Records) -> dict[str, Any]:
    """The start that explains the message best, beside the records that went in, for JSON.

    `psnr_blind` is that of `Records.usual` for the same records. `labels_right` is None where fewer
    labels are sought than there are, for then some guess among many is always right. Pictures are
    in 256 levels, (H, W, C).
    """
    best = min(starts, key=lambda start: float(start["misfit"]))
    images = torch.from_numpy(np.ascontiguousarray(best["images"]))
    truths = records.images[torch.from_numpy(matched(images, records.images))]
    pairs = list(zip(images, truths, strict=True))

    def decibels(image: Tensor, truth: Tensor) -> float:
        return min(psnr(image, truth), _MOST_DECIBELS)

    def levels(image: Tensor) -> list:
        return (image.clamp(0, 1) * _LEVELS).round().to(torch.uint8).permute(1, 2, 0).tolist()

    found = np.array([decibels(*pair) for pair in pairs])
    right = labels_right(best["labels"].tolist(), records.labels.tolist())
    return {
        "sees": message.sees,
        "devices": len(message.devices),
        "records": len(records.images),
        "images": len(images),
        "psnr": float(found.mean()),
        "psnr_best": float(found.max()),
        "psnr_blind": float(np.mean([decibels(records.usual, truth) for truth in truths])),
        "ssim": float(np.array([ssim(*pair) for pair in pairs]).mean()),
        "labels_right": right if len(images) == len(records.images) else None,
        "misfit": for_json(float(best["misfit"])),
        "pictures": [
            {"found": levels(image), "truth": levels(truth), "psnr": float(ratio)}
            for (image, truth), ratio in zip(pairs, found, strict=True)
        ],
    }


def psnr(image: Tensor, truth: Tensor) -> float:
    """Peak signal to noise ratio in dB of an image (C, H, W) in [0, 1]; infinite if it is equal."""
    error = float((image.double() - truth.double()).square().mean())
    return -10 * log10(error) if error > 0 else inf


def ssim(image: Tensor, truth: Tensor) -> float:
    """Structural similarity (Wang et al. 2004) of images (C, H, W) in [0, 1]: the mean over places
    where the window fits, and channels. In images below 11 pixels the window is the largest odd
    one that fits."""
    size = min(_WINDOW, *(side - 1 + side % 2 for side in image.shape[-2:]))
    places = torch.arange(size, dtype=torch.float64) - size // 2
    line = torch.exp(-places.square() / (2 * _DEVIATION**2))
    line = line / line.sum()
    window = (line[:, None] * line)[None, None]
    x, y = image.double()[:, None], truth.double()[:, None]

    def mean(values: Tensor) -> Tensor:
        return functional.conv2d(values, window)

    of_x, of_y = mean(x), mean(y)
    var_x, var_y = mean(x * x) - of_x**2, mean(y * y) - of_y**2
    both = mean(x * y) - of_x * of_y
    ratio = (2 * of_x * of_y + _C1) * (2 * both + _C2)
    return float((ratio / ((of_x**2 + of_y**2 + _C1) * (var_x + var_y + _C2))).mean())


def matched(images: Tensor, truths: Tensor) -> np.ndarray:
    """For each image (n, C, H, W) the truth (N, C, H, W), N at least n, that it stands for: int64
    (n,), all different, such that squared errors are least in all."""
    errors = (images[:, None].double() - truths[None].double()).square().flatten(2).mean(-1)
    _, columns = linear_sum_assignment(errors.numpy())  # rows come in order
    return columns.astype(np.int64)


def labels_right(labels: Sequence[int], truths: Sequence[int]) -> float:
    """The share of labels, in any order, that are among the truths as often."""
    return (Counter(labels) & Counter(truths)).total() / len(labels)
