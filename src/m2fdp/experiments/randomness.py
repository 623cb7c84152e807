"""What a run's random draws are keyed by."""

from __future__ import annotations

import json

import numpy as np

from m2fdp.config import Config, released
from m2fdp.data.dataset import Dataset
from m2fdp.data.manifest import DeviceSamples
from m2fdp.streams import Randomness, digest_of, from_entropy, seeded
from m2fdp.topology.network import Network


def randomness_of(
    config: Config,
    network: Network,
    dataset: Dataset,
    shards: DeviceSamples,
    held_out: np.ndarray,
) -> Randomness:
    """A run's draws. Noise is keyed by all that a release depends on, down to the records.

    Files may change under one configuration: were the noise of the run before used again, the
    difference of the two models would be that of the records, in clear.

    Args:
        network: that the algorithm trains over.
        shards: which of the data set's records each device holds.
        held_out: int64 (n,), the records that the model is evaluated on: step sizes that wait for a
            better accuracy follow from them, and a score of them is a release.
    """
    if config.privacy.secure_rng:
        return from_entropy()
    counts = config.training.plateau.factor < 1 or config.partition.held_out_by == "devices"
    followed = held_out if counts else held_out[:0]
    arrays = (
        *network.tree.parents,
        *network.trust,
        shards.sizes,
        dataset.labels[shards.samples],
        dataset.images[shards.samples],
        *((dataset.labels[followed], dataset.images[followed]) if len(followed) else ()),
    )
    key = digest_of(json.dumps(released(config), sort_keys=True), arrays)
    return seeded(config.seed, key)
