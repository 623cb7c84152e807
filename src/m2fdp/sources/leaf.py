"""Records in LEAF's JSON (Caldas et al. 2018, arXiv 1812.01097), whose users are the devices."""

import json
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.partitioners import stratified_position
from m2fdp.core.errors import InputError, one_line
from m2fdp.core.formatting import counted, some_of
from m2fdp.core.streams import generator
from m2fdp.given.records import Refuse, check_images, plain
from m2fdp.sources.arrays import numbering, plain_values
from m2fdp.sources.texts import hashed

_TEXT = (1, 1024, 1)  # the shape of a text's hashes
_TEST_SHARE = 0.2  # of each user's classes, where one file holds all records
_TWEET = 4  # the place of the text among Sent140's fields, as LEAF's own model takes it


def read_leaf(config: DatasetConfig, unpack_root: Path, seed: int = 0) -> Dataset:
    """The data set of LEAF's folder `dataset.root` with `train/` and `test/`, or of one file.

    Numbers in [0, 1] are images: square ones where their number is a square, HxW or HxWxC where
    lists are nested. Texts are hashed to 1,024 inputs. Labels are whole numbers or texts; classes
    are numbered in their order. Of one file a fifth of each user's classes is tested on.

    Raises:
        InputError: no such file, or it holds something else.
    """
    refuse = partial(InputError, "dataset.root", config.root)
    files = _files(config.root, refuse)
    parts = [_read(file, partial(InputError, "dataset.root", str(file))) for file, _ in files]
    if len(shapes := {images.shape[1:] for images, _, _ in parts}) > 1:
        raise refuse(f"has records of the shapes {some_of(sorted(shapes))}; valid: one of them")
    x, y, clients = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    least = -1 if shapes == {_TEXT} else 0  # hashes have signs
    check_images(x, "x", refuse, least)
    classes, labels = np.unique(plain_values(y, "y", len(x), refuse), return_inverse=True)
    if len(classes) < 2:
        raise refuse(f"has the label {classes[0]} alone; valid: two classes at least")
    notes = numbering(classes)
    if files[0][1] is None:
        group = np.unique(clients, return_inverse=True)[1]
        place = stratified_position(group, labels, generator(seed, "leaf-test"))
        is_test = place < np.round(_TEST_SHARE * np.bincount(group)[group])
        notes.append(f"a share of {_TEST_SHARE} of each user's classes is drawn to be tested on")
    else:
        is_test = np.repeat([test for _, test in files], [len(part[0]) for part in parts])
    if not is_test.any():
        raise refuse("has too few records of each user for a test record; valid: more")
    if strangers := sorted({*clients[is_test]} - {*clients[~is_test]}):
        some = f"{counted(len(strangers), 'user')} with test records only: {some_of(strangers)}"
        notes.append(f"{some}; they are tested on, and no devices")
    order, n_train = np.argsort(is_test, kind="stable"), int((~is_test).sum())
    of_files = *plain(x[order], labels[order], least), n_train, len(classes), least < 0
    return Dataset("leaf", *of_files, clients=clients[order], notes=tuple(notes))


def _files(root: str, refuse: Refuse) -> list[tuple[Path, bool | None]]:
    """The files, and whether their records are test records; None = some are."""
    path = Path(root).expanduser()
    if path.is_file():
        return [(path, None)]
    found = {split: sorted((path / split).glob("*.json")) for split in ("train", "test")}
    if absent := [split for split, files in found.items() if not files]:
        valid = "valid: a folder with train/ and test/, each with files .json, or one such file"
        raise refuse(f"has no file .json in {' and '.join(absent)}/; {valid}")
    return [(file, split == "test") for split, files in found.items() for file in files]


def _read(file: Path, refuse: Refuse) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The images (n, H, W, C) of a file, their labels and users (n,)."""
    rows, labels, users = list[Any](), list[Any](), list[str]()
    try:
        for user, held in json.loads(file.read_text(encoding="utf-8"))["user_data"].items():
            rows += held["x"]
            labels += held["y"]
            users += [str(user)] * len(held["x"])
            if len(labels) != len(rows):
                raise ValueError(f"the user {user} has {len(held['x'])} x and {len(held['y'])} y")
        if not rows:
            raise ValueError("there is no record")
        return _images(rows), np.array(labels), np.array(users)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        valid = "valid: JSON with user_data: {user: {x: [], y: []}}, as many y as x"
        raise refuse(f"is no file of LEAF's ({one_line(error)}); {valid}") from error


def _images(rows: list[Any]) -> np.ndarray:
    """Records as images (n, H, W, C), float32."""
    texts = [_text(row) for row in rows]
    if all(text is not None for text in texts):
        if str(texts[0]).lower().endswith((".jpg", ".png")):
            raise ValueError(f"x names pictures, such as {texts[0]}, and lacks their pixels")
        return hashed([str(text) for text in texts], _TEXT[1]).astype(np.float32)[:, None, :, None]
    x = np.array(rows, dtype=np.float32)
    if x.ndim < 3:
        x = x.reshape(len(x), -1)
        side = isqrt(x.shape[1])
        x = x.reshape(len(x), *((side, side) if side * side == x.shape[1] else (1, -1)))
    return x if x.ndim == 4 else x[..., None]


def _text(row: Any) -> str | None:
    """What a record says; None where it is no text."""
    if isinstance(row, list) and row and all(isinstance(part, str) for part in row):
        return row[_TWEET] if len(row) > _TWEET else " ".join(row)
    return row if isinstance(row, str) else None
