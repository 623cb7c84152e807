"""Who reads what: a SHA-256 of all that follows from it, for every configuration.

For those of the golden ledger, and for as many random ones more as `DRAWN` says, which have what
came since: sums, elected super-nodes, chance, zones' algorithms, bounded models, split models,
collusion. Of each: every line of the ledger with its words and its noise to the last bit, where
every observer reads what of every device in a round, and the table of zones.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tests.golden.adapter import sights
from tests.golden.configurations import Configuration, Overrides

from m2fdp.core.errors import InputError

DRAWN = 200
Frozen = dict[str, Any]


def make(ledger: dict[str, Any]) -> Frozen:
    """A digest a configuration; of a drawn one with the attempt that was not refused.

    Args:
        ledger: the golden ledgers.
    """
    base, result = ledger["base"], {}
    with TemporaryDirectory() as folder:
        for configuration in _golden(ledger):
            result[configuration.name] = _digest(configuration, base, Path(folder))
        for number in range(DRAWN):
            attempt = 0
            while True:
                configuration = drawn(number, attempt)
                try:
                    found = _digest(configuration, base, Path(folder))
                except InputError:
                    attempt += 1
                    continue
                result[configuration.name] = f"{attempt} {found}"
                break
    return result


def differences(frozen: Frozen, ledger: dict[str, Any], every: int) -> Iterator[str]:
    """A line for each of every so many-th configuration of which something has changed."""
    base = ledger["base"]
    golden = {configuration.name: configuration for configuration in _golden(ledger)}
    with TemporaryDirectory() as folder:
        for name, was in list(frozen.items())[::every]:
            configuration = golden.get(name) or drawn(int(name[1:]), int(was.split()[0]))
            try:
                found = _digest(configuration, base, Path(folder))
            except InputError as error:
                found = f"refused: {error}"
            if found != was.split()[-1]:
                text = json.dumps(asdict(configuration))
                yield f"{name}: another sight of {text}: {found}"


def _golden(ledger: dict[str, Any]) -> Iterator[Configuration]:
    for each in ledger["ledgers"]:
        yield Configuration(**each["configuration"])


def _digest(configuration: Configuration, base: dict[str, Any], folder: Path) -> str:
    digest = sha256()
    for line in sights(configuration.parameters(base, folder), configuration.sizes):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def drawn(number: int, attempt: int) -> Configuration:
    """A random configuration, which may be refused."""
    rng = np.random.default_rng([33, number, attempt])

    def chance(share: float) -> bool:
        return bool(rng.random() < share)

    mechanism = ("gradient", "upload", "upload", "weights")[number % 4]
    algorithm = _algorithm(rng, mechanism)
    depth = 2 if mechanism == "weights" else int(rng.choice([1, 2, 2, 2, 3, 3, 4]))
    depth = {"hdp_mixed": 2, "dtfl": 1}.get(algorithm, depth)
    fanouts = [int(f) for f in rng.integers(1, 5 if depth < 3 else 3, size=depth)]
    sizes = [int(size) for size in rng.choice([40, 90, 160], size=int(np.prod(fanouts)))]
    if chance(0.4):
        sizes = [80] * len(sizes)
    elected = depth > 1 and chance(0.3)
    topology: Overrides = {
        "fanouts": fanouts,
        "edges": None,
        "weights": "samples" if chance(0.25) else "uniform",
        "trust": {"ratios": [float(rng.choice([0, 0.5, 1])) for _ in range(depth - 1)] or None},
        "super_nodes": {"kind": "elected" if elected else "fixed"},
    }
    training: Overrides = {
        "rounds": int(rng.integers(1, 5)),
        "local_steps": int(rng.integers(1, 4)),
        "local_aggregation": {
            str(layer): int(rng.integers(1, 3)) for layer in range(1, depth) if chance(0.4)
        },
        "batch_size": None if chance(0.6) else 20.0,
        "participants": int(rng.integers(1, 3)) if chance(0.1) else None,
        "participation": 0.5 if chance(0.25) else None,
    }
    overrides: Overrides = {
        "algorithm": algorithm,
        "seed": int(rng.integers(100)),
        "topology": topology,
        "training": training,
        "privacy": _privacy(rng, mechanism),
        "threat": _threat(rng, elected),
        "secure_aggregation": _sums(rng, depth),
    }
    if algorithm == "hdp_mixed":
        of = str(rng.choice(["zones", "devices"]))
        zones = {"cloud_noise": chance(0.5), "both_layers": chance(0.3), "device_noise_of": of}
        overrides["zones"] = zones
    if algorithm in ("dtfl", "m2fdp_tiers"):
        overrides["model"] = {"name": "cnn12"}
        overrides["secure_aggregation"] = {}
        overrides["privacy"] |= {"adjacency": "zero_out", "unit": "record"}
        topology |= {"weights": "uniform"}
        training |= {"participation": None, "batch_size": 20.0}
    if algorithm == "dtfl":
        overrides |= {"tiering": {"tiers": 2}, "clock": {"model": "trained"}}
    if algorithm == "m2fdp_tiers":
        overrides["tiering"] = {"offload_to": str(rng.choice(["trusted", "anyone"]))}
    return Configuration(f"n{number}", overrides, None, sizes)


def _algorithm(rng: np.random.Generator, mechanism: str) -> str:
    if mechanism == "weights":
        return str(rng.choice(["global_dp", "global_dp", "m2fdp", "hfl_dp"]))
    of_trees = ["m2fdp", "m2fdp", "m2fdp", "hfl_dp", "pedpfl"]
    of_zones = ["cdp", "hdp", "hdp_mixed", "hdp_mixed", "ldp"]
    in_tiers = [*["m2fdp_tiers"] * 3, "dtfl"] if mechanism == "gradient" else []
    return str(rng.choice([*of_trees, *of_zones, *in_tiers, "hfl"]))


def _privacy(rng: np.random.Generator, mechanism: str) -> Overrides:
    result: Overrides = {"mechanism": mechanism, "epsilon": 6.0, "delta": 1e-5}
    if mechanism != "weights" and rng.random() < 0.7:
        result |= {"calibration": "multiplier", "noise_multiplier": 1.5}
    if mechanism == "weights" and rng.random() < 0.3:
        caught = {"uplinks": 1, "cloud_rounds": 1, "downlinks": 0, "cloud_downlinks": 1}
        result["exposures"] = caught
    if rng.random() < 0.3:
        result["unit"] = "device"
    if mechanism == "upload":
        rng.random()  # of a key that was removed (0.21), so that all else is drawn as before
    return result


def _threat(rng: np.random.Generator, elected: bool) -> Overrides:
    kinds = ["servers", "cloud", "siblings", "cousins", "far_devices", "public"]
    kinds += ["super_nodes"] * elected
    chosen = [kind for kind in kinds if rng.random() < 0.4]
    colluding = int(rng.integers(1, 3)) if rng.random() < 0.3 else 0
    return {"distrusted": chosen or ["public"], "open_links": [], "colluding": colluding}


def _sums(rng: np.random.Generator, depth: int) -> Overrides:
    if rng.random() < 0.5:
        return {"layers": []}
    decode = str(rng.choice(["parent", "cloud"]))
    layers = [layer for layer in range(1, depth + 1) if rng.random() < 0.6]
    return {
        "layers": layers[:1] if decode == "cloud" else layers,
        "decode": decode,
        "noise": str(rng.choice(["separate", "shared"])),
        "dropout": 0.1 if rng.random() < 0.2 else 0.0,
    }
