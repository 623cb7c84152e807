"""Systems whose rounds can be cut into blocks of subtrees."""

import pandas as pd
from tests.builders import experiment_of

BASE = {
    "training.rounds": 2,
    "training.local_steps": 4,
    "training.local_aggregation": {1: 2},
    "training.batch_size": 8,
    "model.name": "softmax",
    "privacy.epsilon": 20.0,
}
UPLOAD = {"privacy.mechanism": "upload", "privacy.unit": "device", "privacy.epsilon": 50.0}
STAR = {
    "topology.fanouts": [100],
    "topology.trust.ratios": None,
    "training.local_aggregation": None,
}
PULLED = {
    "training.proximal": 0.7,
    "training.proximal_center": "global",
    "topology.fanouts": [18, 2],
    "topology.trust.ratios": [0.5],
}
SYSTEMS = {
    "a tree of two tiers": {},
    "many servers": {"topology.fanouts": [40, 2], "topology.trust.ratios": [0.5]},
    "three tiers": {
        "topology.fanouts": [18, 2, 2],
        "topology.trust.ratios": [0.6, 0.5],
        "training.local_aggregation": {1: 2, 2: 1},
    },
    "ragged": {
        "topology.edges": "ragged.csv",
        "topology.trust.ratios": [0.6, 0.5],
        "training.local_aggregation": {1: 2, 2: 1},
    },
    "models of devices": {**UPLOAD, "topology.fanouts": [40, 2]},
    "models that are clipped": {"privacy.mechanism": "weights", "topology.fanouts": [18, 3]},
    "a star": STAR,
    "a star whose devices join by chance": STAR | {"training.participation": 0.5},
    "models of devices that join by chance": {
        **UPLOAD,
        "topology.fanouts": [20, 3],
        "training.participation": 0.5,
        "training.estimator": "clipped",
        "training.least_weight": 1.5,
        "training.local_aggregation": None,
    },
    "gradients of devices, dense": {
        "model.name": "dense",
        "privacy.unit": "device",
        "privacy.epsilon": 50.0,
        "topology.fanouts": [18, 5],
        "topology.trust.ratios": [0.5],
    },
    "pulled": PULLED,
    "models of devices, pulled": PULLED | UPLOAD | {"training.proximal_center": "received"},
    "some devices a round": {"topology.fanouts": [20, 4], "training.participants": 2},
    "secure sums": {
        **UPLOAD,
        "algorithm": "hfl_dp",
        "topology.fanouts": [18, 4],
        "secure_aggregation.layers": [1, 2],
        "secure_aggregation.noise": "shared",
        "secure_aggregation.dropout": 0.2,
    },
    "slots": {"algorithm": "scaffold", "topology.fanouts": [20, 2]},
    "convolutions": {"model.name": "cnn12", "topology.fanouts": [20, 2], "training.rounds": 1},
    "one record after the other": {
        "training.backend": "reference",
        "training.local_steps": 2,
        "training.local_aggregation": None,
        "topology.fanouts": [17, 1],
    },
}


def build_system(name, **changes):
    """The experiment of a system, in an empty working directory."""
    _ragged().to_csv("ragged.csv", index=False)
    return experiment_of(BASE | SYSTEMS[name] | changes)


def _ragged():
    """20 servers of layer 1 with one below each, and one or two devices."""
    edges = [(f"a{i}", "cloud") for i in range(20)] + [(f"b{i}", f"a{i}") for i in range(20)]
    edges += [(f"c{i}-{j}", f"b{i}") for i in range(20) for j in range(1 + i % 2)]
    return pd.DataFrame(edges, columns=["child", "parent"])
