"""Random configurations, and some that are refused, for which ledgers are written down."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Overrides = dict[str, Any]
Edges = list[list[str]]

MOST_DEVICES = 12
PER_FAMILY = 3


@dataclass(frozen=True)
class Configuration:
    """What one ledger is computed from.

    Attributes:
        overrides: of the base parameters, block by block; a key's value replaces the base's.
        edges: (parent, child) pairs of the file that `topology.edges` names, if any.
        sizes: D_j of every device.
    """

    name: str
    overrides: Overrides
    edges: Edges | None
    sizes: list[int]

    def parameters(self, base: dict[str, Any], folder: Path) -> dict[str, Any]:
        """The nested parameters; the file of edges is written into the folder."""
        result = dict(base)
        for block, over in self.overrides.items():
            result[block] = base.get(block, {}) | over if isinstance(over, dict) else over
        if self.edges is not None:
            file = folder / f"{self.name}.csv"
            with file.open("w", newline="") as stream:
                csv.writer(stream).writerows([["parent", "child"], *self.edges])
            result["topology"] = result["topology"] | {"edges": str(file)}
        return result


@dataclass(frozen=True)
class _Family:
    """What the configurations of one kind have in common.

    Attributes:
        fixed: blocks that are merged over what is drawn.
        star: whether the cloud may be the devices' parent.
    """

    fixed: Overrides
    star: bool = True


def _upload(**privacy: Any) -> Overrides:
    return {"privacy": {"mechanism": "upload", **privacy}}


def _control(**privacy: Any) -> Overrides:
    return {"algorithm": "m2fdp", "control": {"enabled": True}, "privacy": privacy}


# As many as are coprime with 3, so that a third of all has one of each. None: what they drew was
# removed (0.20, 0.21); their numbers stay, so that all others are drawn as before.
FAMILIES: dict[str, _Family | None] = {
    "gradient": _Family({"algorithm": "m2fdp"}),
    "gradient_zero_out": _Family({"privacy": {"adjacency": "zero_out"}}),
    "gradient_replace_one": _Family({"privacy": {"adjacency": "replace_one"}}),
    "gradient_device": _Family({"privacy": {"unit": "device"}}),
    "upload": _Family({"algorithm": "m2fdp", **_upload(unit="record")}),
    "upload_smooth": None,
    "upload_non_expansive": None,
    "upload_device": _Family(_upload(unit="device")),
    "upload_paper": _Family(_upload(calibration="paper")),
    "upload_paper_smooth": None,
    "upload_downlink_noise": None,
    "control": _Family(_control(), star=False),
    "control_upload": _Family(_control(mechanism="upload"), star=False),
    "control_paper": _Family(_control(mechanism="upload", calibration="paper"), star=False),
    "many_step_sizes": _Family({"training": {"step_size": "inverse_sqrt"}, **_upload()}),
    "participants": _Family({"algorithm": "m2fdp"}, star=False),
    "no_privacy": _Family({"algorithm": "hfl"}),
}


def drawn() -> Iterator[Iterator[Configuration]]:
    """For each configuration that is wanted, endless attempts; the first accepted one is taken."""
    for number in range(PER_FAMILY * len(FAMILIES)):
        if list(FAMILIES.values())[number % len(FAMILIES)] is not None:
            yield _attempts(number)


def _attempts(number: int) -> Iterator[Configuration]:
    name = list(FAMILIES)[number % len(FAMILIES)]
    family = FAMILIES[name]
    assert family is not None
    attempt = 0
    while True:
        yield _draw(f"{number:03d}_{name}", family, np.random.default_rng([number, attempt]))
        attempt += 1


def _draw(name: str, family: _Family, rng: np.random.Generator) -> Configuration:
    fixed = family.fixed
    depth = int(rng.integers(1 if family.star else 2, 6))
    controlled = "control" in fixed
    privacy = _privacy(rng, fixed.get("privacy", {}))
    algorithm = fixed.get("algorithm") or str(
        rng.choice(["m2fdp", "m2fdp", "m2fdp", "hfl_dp", "pedpfl"])
    )
    topology, edges, n_devices = _topology(rng, depth)
    sizes = _sizes(rng, n_devices)
    overrides: Overrides = {
        "algorithm": algorithm,
        "seed": int(rng.integers(100)),
        "topology": topology,
        "training": _training(rng, depth, controlled, name[4:], sizes) | fixed.get("training", {}),
        "privacy": privacy,
        "threat": _threat(rng, depth),
    }
    if "model" in fixed:
        overrides["model"] = fixed["model"]
    if controlled:
        overrides["control"] = _controls(rng)
        overrides["resources"] = {
            "uplinks": str(rng.choice(["sequential", "parallel"])),
            "wireless_rate_mbps": float(rng.choice([5.0, 35.0])),
            "step_energy_j": float(rng.choice([1e-3, 1.0])),
        }
    return Configuration(name, overrides, edges, sizes)


def _privacy(rng: np.random.Generator, fixed: Overrides) -> Overrides:
    result: Overrides = {
        "mechanism": "gradient",
        "epsilon": float(np.round(rng.uniform(1, 12), 3)),
        "delta": float(rng.choice([1e-5, 1e-4])),
        "clipping_norm": float(rng.choice([0.5, 1.0, 3.0])),
    } | fixed
    if "adjacency" not in fixed:
        result["adjacency"] = str(rng.choice(["add_remove", "zero_out"]))
    if result["mechanism"] == "upload" and not fixed.keys() & {"unit", "calibration"}:
        rng.random()  # of a key that was removed (0.21), so that all else is drawn as before
    if result.get("calibration") == "paper":
        result["alpha"] = float(np.round(rng.uniform(2, 12), 2))
        result["epsilon"] = float(np.round(rng.uniform(5, 80), 3))
    elif rng.random() < 0.15:
        result["budget"] = float(np.round(result["epsilon"] * rng.uniform(0.6, 0.98), 3))
    return result


def _topology(rng: np.random.Generator, depth: int) -> tuple[Overrides, Edges | None, int]:
    ragged = rng.random() < 0.6
    while True:
        most = 4 if depth < 3 else 3 if depth < 4 else 2
        fanouts = [int(f) for f in rng.integers(1, most + 1, size=depth)]
        counts = [
            [int(c) for c in rng.integers(1, most + 1, size=1 if layer == 0 else 64)]
            if ragged
            else [fanouts[layer]] * 64
            for layer in range(depth)
        ]
        layers, edges = _tree(counts)
        if 2 <= len(layers[-1]) <= MOST_DEVICES:
            break
    trust: Overrides = {"ratios": None, "untrusted": None}
    how = rng.random()
    if how < 0.55:
        trust["untrusted"] = _untrusted(rng, layers, edges)
    elif how < 0.9:
        trust["ratios"] = [float(np.round(r, 2)) for r in rng.random(depth - 1)]
    topology: Overrides = {"fanouts": None if ragged else fanouts, "edges": None, "trust": trust}
    return topology, edges if ragged else None, len(layers[-1])


def _tree(counts: list[list[int]]) -> tuple[list[list[str]], Edges]:
    """The nodes of every layer, named as a tree from fan-outs names them, and the edges."""
    depth = len(counts)
    layers, edges = [["cloud"]], []
    for layer, children in enumerate(counts, start=1):
        kind = "device" if layer == depth else f"server-{layer}"
        parents = np.repeat(layers[-1], children[: len(layers[-1])]).tolist()
        layers.append([f"{kind}-{i}" for i in range(len(parents))])
        edges += [[parent, child] for parent, child in zip(parents, layers[-1], strict=True)]
    return layers, edges


def _untrusted(rng: np.random.Generator, layers: list[list[str]], edges: Edges) -> list[str]:
    """Servers below untrusted ones only (J eq. 4)."""
    parent_of = {child: parent for parent, child in edges}
    result = ["cloud"]
    share = rng.uniform(0.2, 0.9)
    for layer in layers[1:-1]:
        result += [name for name in layer if parent_of[name] in result and rng.random() < share]
    return result[1:]


def _training(
    rng: np.random.Generator, depth: int, controlled: bool, family: str, sizes: list[int]
) -> Overrides:
    rounds = int(rng.integers(9, 13) if family == "many_step_sizes" else rng.integers(1, 7))
    steps = int(rng.integers(1, 5))
    layers = [1] if controlled else list(range(1, depth))
    aggregation = {
        str(layer): int(rng.integers(1, 4)) for layer in layers if depth > 1 and rng.random() < 0.4
    }
    takes_part = family == "participants" or (not controlled and rng.random() < 0.15)
    batch = None if rng.random() < 0.5 else float(rng.integers(2, 40))
    return {
        "rounds": 2 * rounds if controlled else rounds,
        "local_steps": steps,
        "local_aggregation": aggregation,
        "participants": int(rng.integers(1, 3)) if takes_part else None,
        "batch_size": batch,
        "learning_rate": float(np.round(rng.uniform(0.1, 1.1) * 0.8, 4)),
        "step_size": str(rng.choice(["constant", "inverse_sqrt"], p=[0.7, 0.3])),
    }


def _sizes(rng: np.random.Generator, n_devices: int) -> list[int]:
    """All equal, of two kinds, or all different."""
    how = rng.random()
    if how < 0.4:
        return [int(rng.integers(20, 300))] * n_devices
    if how < 0.85:
        kinds = rng.integers(10, 300, size=2)
        return [int(size) for size in rng.choice(kinds, size=n_devices)]
    return [int(size) for size in rng.integers(10, 200, size=n_devices)]


def _threat(rng: np.random.Generator, depth: int) -> Overrides:
    if rng.random() < 0.5:
        return {"distrusted": ["servers", "cloud"], "open_links": []}
    kinds = ["servers", "cloud", "siblings", "cousins", "far_devices", "public"]
    chosen = [kind for kind in kinds if rng.random() < 0.4]
    links = [link for link in ("uplinks", "downlinks") if rng.random() < 0.15]
    return {"distrusted": chosen or [str(rng.choice(kinds))], "open_links": links}


def _controls(rng: np.random.Generator) -> Overrides:
    most = int(rng.integers(3, 9))
    alphas = np.round(rng.uniform(0, 3, size=3) * (rng.random(3) < 0.7), 2).tolist()
    return {
        "enabled": True,
        "gap": "papers",
        "alpha_1": alphas[0],
        "alpha_2": alphas[1],
        "alpha_3": alphas[2] or 1.0,
        "tau": None if rng.random() < 0.3 else int(rng.integers(4, 25)),
        "smoothness": "estimated"
        if rng.random() < 0.5
        else float(np.round(rng.uniform(0.2, 3), 2)),
        "max_local_steps": most,
        "initial_local_steps": int(rng.integers(1, most + 1)),
        "step_size_factor": float(rng.choice([1.0, 20.0])),
    }


def _wrong(name: str, sizes: list[int] | None = None, **overrides: Any) -> Configuration:
    """Six devices below two servers, and something wrong."""
    topology = {"fanouts": [2, 3], "edges": None, "trust": {"ratios": [0.5]}}
    overrides["topology"] = topology | overrides.get("topology", {})
    training = {"rounds": 2, "local_steps": 2}
    overrides["training"] = training | overrides.get("training", {})
    return Configuration(f"refused_{name}", overrides, None, sizes or [50] * 6)


def refused() -> list[Configuration]:
    """Configurations that are wrong in one way each."""
    upload = {"mechanism": "upload"}
    control = {"enabled": True}
    return [
        _wrong("algorithm", algorithm="fedprox"),
        _wrong("participants", training={"participants": 4}),
        _wrong("aggregation_layer", training={"local_aggregation": {"2": 1}}),
        _wrong("untrusted_name", topology={"trust": {"untrusted": ["server-9-0"]}}),
        _wrong("ratios", topology={"trust": {"ratios": [0.5, 0.5]}}),
        _wrong(
            "trust_closure",
            sizes=[50] * 8,
            topology={"fanouts": [2, 2, 2], "trust": {"untrusted": ["server-2-0"]}},
        ),
        _wrong("gradient_paper", privacy={"calibration": "paper"}),
        _wrong("upload_replace_one", privacy=upload | {"adjacency": "replace_one"}),
        _wrong("delta", privacy={"delta": 0.02}),
        _wrong("delta_rare", privacy={"delta": 1e-3}, training={"batch_size": 1e-3}),
        _wrong("control_baseline", algorithm="hfl_dp", control=control),
        _wrong("control_participants", control=control, training={"participants": 2}),
        _wrong(
            "control_star",
            control=control,
            topology={"fanouts": [6], "trust": {"ratios": None}},
            training={"local_aggregation": {}},
        ),
        _wrong(
            "in_clear",
            training={"local_steps": 3},
            privacy=upload,
            threat={"distrusted": ["siblings"]},
        ),
        _wrong(
            "nobody",
            topology={"fanouts": [6], "trust": {"ratios": None}},
            training={"local_aggregation": {}},
            privacy=upload,
            threat={"distrusted": ["servers"]},
        ),
        _wrong("budget", privacy={"budget": 0.01}),
        _wrong("unknown_model", model={"name": "mlp"}),
    ]
