"""Random private runs on small images, of all algorithms, mechanisms and rules that go together."""

from dataclasses import replace

import numpy as np
import torch
from tests.builders import records_of

from m2fdp import Experiment, load_config
from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.algorithms.m2fdp import M2FDP
from m2fdp.core.engine.rules import Rules
from m2fdp.core.errors import InputError
from m2fdp.core.topology.network import Network, noise_plan

# A model that is split, so that neighbours differ in features.
SPLIT = {
    "model.name": "cnn12",
    "model.channels": [1, 2, 2],
    "tiering.tiers": 3,
    "model.loss": None,
    "privacy.adjacency": "replace_one",
    "secure_aggregation.layers": [],
    "secure_aggregation.noise": "separate",
    "training.proximal": 0.0,
}


_MOST_ATTEMPTS, _MOST_DEVICES = 300, 12


class Sized:
    """A rule of one's own: a noised step, as long as a fixed number."""

    anchored = False

    def step(self, models, anchors, eta, descend):
        before = models.clone()
        descend(models)
        moved = models - before
        models.copy_(before + eta * moved / moved.norm(dim=1, keepdim=True).clamp_min(1e-9))


def _own_plan(given: Given) -> Plan:
    """More noise than is needed: below heads, and on the way above them."""
    rng = np.random.default_rng(given.seed)
    needed = noise_plan(given.tree, given.trust)
    noise = [np.maximum(part, rng.choice([0.0, 0.5, 1.0], size=len(part))) for part in needed]
    return Plan(Network(given.tree, given.trust, tuple(noise)), given.schedule, private=True)


def _own_rule(given: Given) -> Plan:
    return replace(M2FDP.plan(given), rules=Rules(local=Sized()))


OWN_PLAN = Algorithm("own_plan", "Own plan", "method", _own_plan)
OWN_RULE = Algorithm("own_rule", "Own rule", "method", _own_rule)
FAMILIES = (
    {"algorithm": "m2fdp"},
    {"algorithm": "m2fdp", "privacy.mechanism": "upload"},
    {"algorithm": "m2fdp", "privacy.mechanism": "upload", "privacy.unit": "device"},
    {"algorithm": "m2fdp", "privacy.unit": "device"},
    {"algorithm": "m2fdp", "privacy.adjacency": "replace_one"},
    {"algorithm": "m2fdp", "privacy.unit": "device", "training.participation": 0.6},
    {"algorithm": "m2fdp", "training.participants": 1},
    {"algorithm": "global_dp", "privacy.mechanism": "weights"},
    {"algorithm": "scaffold"},
    {"algorithm": "cdp"},
    {"algorithm": "ldp"},
    {"algorithm": "hdp"},
    {"algorithm": "hdp_mixed"},
    {"algorithm": "pedpfl"},
    {"algorithm": "hfl_dp", "privacy.mechanism": "upload"},
    {"algorithm": f"{__name__}:OWN_PLAN"},
    {"algorithm": f"{__name__}:OWN_PLAN", "privacy.mechanism": "upload"},
    {"algorithm": f"{__name__}:OWN_RULE", "secure_aggregation.layers": []},
    {"algorithm": "hdp", "topology.super_nodes.kind": "elected"},
    {
        "algorithm": "m2fdp",
        "privacy.mechanism": "upload",
        "privacy.unit": "device",
        "training.participation": 0.6,
        "training.estimator": "clipped",
        "training.least_weight": 0.5,
    },
    {"algorithm": "m2fdp_tiers", "tiering.offload_to": "trusted", **SPLIT},
    {"algorithm": "m2fdp_tiers", "tiering.offload_to": "anyone", **SPLIT},
)


def wavy(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss whose gradient turns round within a step of noise."""
    of_labels = scores.gather(-1, labels[:, None])[:, 0]
    return torch.sin(30 * of_labels) + torch.cos(7 * scores).sum(-1)


def drawn_run(number: int) -> Experiment:
    """The first of some attempts that is accepted; families come by turns."""
    family = FAMILIES[number % len(FAMILIES)]
    for attempt in range(_MOST_ATTEMPTS):
        overrides, sizes = _draw(np.random.default_rng([number, attempt]), family)
        records = records_of(sizes, n_classes=4)
        try:
            experiment = Experiment.from_config(load_config(overrides), *records)
            _ = experiment.calibration, experiment.model
        except InputError:
            continue
        return experiment
    raise AssertionError(f"no run of {family} is accepted")


def _draw(rng: np.random.Generator, family: dict[str, object]) -> tuple[dict[str, object], list]:
    zones = family["algorithm"] in ("cdp", "ldp", "hdp", "hdp_mixed", "global_dp", "m2fdp_tiers")
    depth = 2 if zones else int(rng.integers(1, 4))
    while True:
        fanouts = [int(f) for f in rng.integers(1, 5 if depth < 3 else 3, size=depth)]
        most = 4 if "model.channels" in family else _MOST_DEVICES
        if 2 <= np.prod(fanouts) <= most:
            break
    n_devices = int(np.prod(fanouts))
    sizes = [int(n) for n in rng.choice([6, 12, 25], size=n_devices)]
    choose = lambda *values: values[int(rng.integers(len(values)))]  # noqa: E731
    overrides: dict[str, object] = {
        "seed": int(rng.integers(100)),
        "topology.fanouts": fanouts,
        "topology.trust.ratios": [round(float(r), 2) for r in rng.random(depth - 1)] or None,
        "topology.weights": choose("uniform", "uniform", "samples"),
        "training.rounds": 2,
        "training.local_steps": int(rng.integers(1, 5)),
        "training.local_aggregation": {
            layer: int(rng.integers(1, 3)) for layer in range(1, depth) if rng.random() < 0.5
        }
        or None,
        "training.batch_size": choose(None, 4.0, 8.0),
        "training.learning_rate": choose(0.1, 0.5),
        "training.step_size": choose("constant", "inverse_sqrt"),
        "training.server.rule": choose("average", "average", "momentum", "yogi"),
        "training.proximal": choose(0.0, 0.0, 0.5),
        "training.backend": choose("auto", "auto", "sequential"),
        "model.name": choose("softmax", "softmax", "svm", "dense", "lenet", "cnn12"),
        "privacy.epsilon": choose(1.0, 8.0),
        "privacy.delta": 1e-4,
        "privacy.clipping_norm": choose(0.3, 1.0),
        "threat.distrusted": choose(
            ["servers", "cloud"], ["servers", "cloud", "siblings", "far_devices"], ["public"]
        ),
    }
    if n_devices > 6:  # which take long
        overrides["model.name"] = "dense"
    if overrides["model.name"] == "cnn12":
        overrides["model.channels"] = [1, 2, 2]
    if rng.random() < 0.3:
        overrides["model.loss"] = f"{__name__}:wavy"
    if depth > 1 and rng.random() < 0.25:
        overrides["secure_aggregation.layers"] = [int(rng.integers(1, depth + 1))]
        overrides["secure_aggregation.noise"] = choose("separate", "shared")
    return overrides | family, sizes
