"""Keys that nothing in a run reads (`m2fdp.core.config.readers`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from m2fdp.core import own_code
from m2fdp.core.config import Config
from m2fdp.core.config import readers as by
from m2fdp.core.config.reference import in_yaml
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.request import DEPLOYMENT, Request


def _splits(request: Request) -> bool:
    return request.network.splits is not None


def _has_papers_noise(request: Request) -> bool:
    control = request.config.control
    of_control = control.enabled and control.gap == "papers"
    return of_control or request.privacy.calibration == "paper" or "bound" in request.pipelines


def _way(request: Request) -> Any:
    return getattr(request.algorithm, "tiers", None)


def _is_in_tiers(request: Request) -> bool:
    return _way(request) is not None and _way(request).tiered


def _makes_tables(request: Request) -> bool:
    return "clock" in request.pipelines


READERS: dict[str, Callable[[Request], bool]] = {
    by.IN_TIERS: lambda request: _way(request) is not None,
    by.OWN_LOSSES: _is_in_tiers,
    by.AVERAGED_TIERS: lambda request: _way(request) is not None and _way(request).averaged,
    by.FEDGKT: lambda request: _way(request) is not None and not _way(request).averaged,
    by.ZONED: lambda request: getattr(request.algorithm, "zoned", False),
    by.SPLITTING: _splits,
    by.CLOCK: _makes_tables,
    by.SCHEDULED: lambda request: (
        _makes_tables(request) or _splits(request) or _is_in_tiers(request)
    ),
    by.BILLED: lambda request: (
        _makes_tables(request) or _splits(request) or _way(request) is not None
    ),
    by.DEPLOYED: lambda request: DEPLOYMENT in request.pipelines,
    by.PAPERS_NOISE: _has_papers_noise,
}


def refuse_idle(request: Request) -> None:
    """Refuse the first key that differs from its default and that nothing reads.

    Raises:
        InputError: naming it, its value, who reads it, and what the run has instead.
    """
    for key, reader in idle_keys(request):
        usual = in_yaml(key.default)
        raise InputError(key.name, key.value, f"{_absent(reader, request)}; leave it at {usual}")


def idle_keys(request: Request) -> Iterator[tuple[by.Key, str]]:
    """The keys that differ from their defaults and are read by nobody, with the reader that they
    lack."""
    for key in by.keys_of(request.config, Config()):
        if key.value != key.default:
            lacking = [reader for reader in key.readers if not reads(reader, request)]
            if lacking:
                yield key, lacking[0]


def read_keys(request: Request) -> frozenset[str]:
    """The keys that something in the run reads; all others have their defaults."""
    return frozenset(
        key.name
        for key in by.keys_of(request.config, Config())
        if all(reads(reader, request) for reader in key.readers)
    )


def reads(reader: str, request: Request) -> bool:
    """Whether a run has a reader."""
    if reader in READERS:
        return READERS[reader](request)
    key, _, values = reader.partition(": ")
    value = request.value(key)
    if not values:
        return request.changed(key)
    return value in values.split(" or ") or (own_code.is_own(str(value)) and _is_handed(key, value))


def _is_handed(key: str, name: str) -> bool:
    """Whether code of the user's own, which a key names, takes the whole block."""
    match key:
        case "privacy.mechanism":
            return True
        case "dataset.name":
            return own_code.n_positional(own_code.load(key, name)) != 0
        case "partition.scheme":
            return own_code.n_positional(own_code.load(key, name)) == 5
    return False


def _absent(reader: str, request: Request) -> str:
    """That a run lacks a reader, in words."""
    if reader in READERS and "algorithm" in reader:
        return f"belongs to {reader}, not to {request.config.algorithm}"
    if reader in READERS:
        return f"belongs to {reader}, of which this run has none"
    key, _, values = reader.partition(": ")
    if values:
        return f"belongs to {reader}, not to {request.value(key)}"
    return f"needs {key}, which is {in_yaml(request.value(key))} here"
