"""Keys that nothing in a run reads (`m2fdp.config.readers`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from m2fdp import own_code
from m2fdp.config import Config
from m2fdp.config import readers as by
from m2fdp.config.reference import in_yaml
from m2fdp.errors import InputError
from m2fdp.experiments.asked import Asked


def _splits(asked: Asked) -> bool:
    return asked.network.splits is not None


def _has_papers_noise(asked: Asked) -> bool:
    control = asked.config.control
    of_control = control.enabled and control.gap == "papers"
    return of_control or asked.privacy.calibration == "paper" or "bound" in asked.pipelines


def _is_in_tiers(asked: Asked) -> bool:
    return asked.way is not None and asked.way.tiered


def _makes_tables(asked: Asked) -> bool:
    return "clock" in asked.pipelines


READERS: dict[str, Callable[[Asked], bool]] = {
    by.IN_TIERS: lambda asked: asked.way is not None,
    by.OWN_LOSSES: _is_in_tiers,
    by.AVERAGED_TIERS: lambda asked: asked.way is not None and asked.way.averaged,
    by.FEDGKT: lambda asked: asked.way is not None and not asked.way.averaged,
    by.ZONED: lambda asked: asked.algorithm.zoned,
    by.SPLITTING: _splits,
    by.CLOCK: _makes_tables,
    by.SCHEDULED: lambda asked: _makes_tables(asked) or _splits(asked) or _is_in_tiers(asked),
    by.BILLED: lambda asked: _makes_tables(asked) or _splits(asked) or asked.way is not None,
    by.PAPERS_NOISE: _has_papers_noise,
}


def refuse_idle(asked: Asked) -> None:
    """Refuse the first key that differs from its default and that nothing reads.

    Raises:
        InputError: naming it, its value, who reads it, and what the run has instead.
    """
    for key, reader in idle_keys(asked):
        usual = in_yaml(key.default)
        raise InputError(key.name, key.value, f"{_absent(reader, asked)}; leave it at {usual}")


def idle_keys(asked: Asked) -> Iterator[tuple[by.Key, str]]:
    """The keys that differ from their defaults and are read by nobody, with the reader that they
    lack."""
    for key in by.keys_of(asked.config, Config()):
        if key.value != key.default:
            lacking = [reader for reader in key.readers if not reads(reader, asked)]
            if lacking:
                yield key, lacking[0]


def reads(reader: str, asked: Asked) -> bool:
    """Whether a run has a reader."""
    if reader in READERS:
        return READERS[reader](asked)
    key, _, values = reader.partition(": ")
    value = asked.value(key)
    if not values:
        return asked.changed(key)
    # A mechanism of the user's own is handed the whole block.
    own = key == "privacy.mechanism" and own_code.is_own(value)
    return own or value in values.split(" or ")


def _absent(reader: str, asked: Asked) -> str:
    """That a run lacks a reader, in words."""
    if reader in READERS and "algorithm" in reader:
        return f"belongs to {reader}, not to {asked.config.algorithm}"
    if reader in READERS:
        return f"belongs to {reader}, of which this run has none"
    key, _, values = reader.partition(": ")
    if values:
        return f"belongs to {reader}, not to {asked.value(key)}"
    return f"needs {key}, which is {in_yaml(asked.value(key))} here"
