"""What a run is called, and the command that repeats it: how it differs from the defaults."""

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import PurePath as Path
from typing import Any

from m2fdp.core.config import Config, flatten
from m2fdp.core.config.keys import OF_LABELS

LONGEST = 60  # characters of a name
_ALGORITHM, _DATASET = 11, 14  # characters that these have of it, at most
# How a run came about, or what is drawn of it; no other run is told from it by these.
_ASIDE = frozenset({"resume", "figures"})
_ALWAYS = ("algorithm", "dataset.name", "seed")  # part of every name, in this order
_PLAIN = re.compile(r"[A-Za-z_]\w*|-?\d+(\.\d+)?(e[+-]?\d+)?")
_DIGEST_LENGTH = 8


def differences(config: Config) -> dict[str, Any]:
    """The dotted keys in which a configuration is not the default one, with its values; None
    where the default has a key that it has not."""
    values, usual = _plain(config), _plain(Config())
    blocks = {key for key in values if any(other.startswith(f"{key}.") for other in usual)}
    gone = {
        key: None
        for key in usual.keys() - values.keys()
        if not any(key.startswith(f"{block}.") for block in blocks)
    }
    changed = {k: value for k, value in values.items() if k not in usual or usual[k] != value}
    # An empty block is written as null, which clears it.
    return {key: None if value == {} else value for key, value in (gone | changed).items()}


def run_name(config: Config, typed: Iterable[str] = ()) -> str:
    """`m2fdp-digits-epsilon_2.0-seed_3`: algorithm, data set, all that is no default, and seed.

    Runs of different configurations have different names: what the name can't say in full, it ends
    with a digest of.
    """
    changed = {key: value for key, value in differences(config).items() if key not in _ALWAYS}
    first = [key for key in dict.fromkeys(typed) if key in changed]
    parts, whole = [], True
    for key in dict.fromkeys([*first, *changed]):
        if _is_place(changed[key]):
            whole = False
            continue
        text, exact = _label(changed[key])
        whole = whole and exact
        parts.append(f"{_short(key)}_{text}")
    of_file = config.dataset.name in (*OF_LABELS, "table")
    labels = (
        _label(config.algorithm),
        _label(Path(config.dataset.root).stem if of_file else config.dataset.name),
    )
    algorithm, dataset = labels[0][0][:_ALGORITHM], labels[1][0][:_DATASET]
    whole = whole and ((algorithm, True), (dataset, True)) == labels
    seed = f"seed_{config.seed}"
    name = "-".join([algorithm, dataset, *parts, seed])
    if whole and len(name) <= LONGEST:
        return name
    ends = [seed, _digest(config)]
    room = LONGEST - len("-".join([algorithm, dataset, "99_more", *ends]))
    lengths = itertools.accumulate(len(part) + 1 for part in parts)
    listed = [part for part, length in zip(parts, lengths, strict=True) if length <= room]
    if (omitted := len(parts) - len(listed)) and room >= 0:
        listed.append(f"{omitted}_more")
    return "-".join([algorithm, dataset, *listed, *ends])


def command(config: Config, pipelines: Iterable[str] = ()) -> str:
    """The `kedro run` that repeats a run, whatever the environments say by then.

    Places of files, which differ from machine to machine, are left to the reader as ROOT, EDGES.
    """
    changed = {key: value for key, value in differences(config).items() if key != "cell"}
    params = ",".join(f"{key}={_argument(key, value)}" for key, value in changed.items())
    words = ["kedro run"]
    if chosen := ",".join(pipelines):
        words.append(f"--pipelines={chosen}")
    if params:
        quoted = f"'{params}'" if re.search(r"[^\w=.,:+-]", params) else params
        words.append(f"--params={quoted}")
    return " ".join(words)


def _plain(config: Config) -> dict[str, Any]:
    flat = flatten(config.model_dump(mode="json"))
    return {key: value for key, value in flat.items() if key not in _ASIDE}


def _is_place(value: Any) -> bool:
    """Whether it is a file's or folder's, which no name and no command shows."""
    return isinstance(value, str) and bool(re.search(r"[/\\~]", value))


def _digest(config: Config) -> str:
    content = json.dumps(_plain(config), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_LENGTH]


def _label(value: Any) -> tuple[str, bool]:
    """A value in a name, and whether it stands for no other value."""
    if isinstance(value, list) and value and not any(isinstance(x, (list, dict)) for x in value):
        texts = [_label(element) for element in value]
        return "+".join(text for text, _ in texts), all(exact for _, exact in texts)
    text = str(value)
    if isinstance(value, Mapping | list) or not _PLAIN.fullmatch(text):
        return re.sub(r"[^\w.+]+", "_", text).strip("_")[:20] or "empty", False
    return text, True


def _argument(key: str, value: Any) -> str:
    """A value as `--params` takes it."""
    if _is_place(value):
        return key.rpartition(".")[2].upper()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list) and value:
        if any(isinstance(element, (list, dict)) for element in value):
            return json.dumps(value, separators=(",", ":"))
        return "|".join(map(str, value))
    return str(value)


@cache
def _leaves() -> Mapping[str, int]:
    """How many keys of the configuration end in each last part."""
    return Counter(key.rpartition(".")[2] for key in _plain(Config()))


def _short(key: str) -> str:
    """A key's last part where no other key has it and it says what of, else all of it."""
    leaf = key.rpartition(".")[2]
    clear = _leaves()[leaf] == 1 and leaf != "enabled" and not leaf.isdigit()
    return leaf if clear and key in _plain(Config()) else key
