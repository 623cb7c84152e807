"""What the tests of studies share."""

# The parameters of an environment: a run of a tiny network on digits.
BASE = {
    "algorithm": "m2fdp",
    "seed": 0,
    "dataset": {"name": "digits"},
    "partition": {"scheme": "iid"},
    "topology": {"fanouts": [2, 2], "trust": {"ratios": [0.5]}},
    "model": {"name": "softmax"},
    "training": {"rounds": 2, "local_steps": 2, "learning_rate": 0.1},
    "privacy": {"epsilon": 4.0, "delta": 1e-5, "clipping_norm": 1.0},
    "resources": {},
}
