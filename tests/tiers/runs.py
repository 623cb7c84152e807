"""Small runs in tiers, of clients with so many records each."""

from tests.builders import records_of

from m2fdp import load_config
from m2fdp.experiment import Experiment

SMALL = {
    "dataset.name": "npz",
    "topology.fanouts": [3],
    "topology.trust.ratios": [],
    "training.local_aggregation": None,
    "training.rounds": 3,
    "training.batch_size": 4,
    "training.learning_rate": 0.01,
    "model.name": "resnet",
    "model.width": 2,
    "threads": 1,
}
SIZES, STARTS = (6, 9, 12), (0, 6, 15, 27)


def experiment(algorithm: str, **keys) -> Experiment:
    return Experiment.from_config(
        load_config(SMALL, {"algorithm": algorithm}, keys), *records_of(SIZES)
    )
