"""What a run's random draws are keyed by."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from m2fdp.core.config import Config, released
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.manifest import DeviceSamples
from m2fdp.core.streams import KeyedStreams, Randomness, digest_of, seeded
from m2fdp.core.topology.network import Network


def randomness_of(
    config: Config,
    network: Network,
    dataset: Dataset,
    shards: DeviceSamples,
    held_out: np.ndarray,
) -> Randomness:
    """A run's draws. Noise is keyed by all that a release depends on, down to the records.

    Files may change under one configuration: were the noise of the run before used again, the
    difference of the two models would be that of the records, in clear. Where devices hold records
    out, so are minibatches keyed by the configuration: the runs of a counted search, which have one
    seed, compose as they are counted only if no chance of being drawn is theirs together.

    Args:
        network: that the algorithm trains over.
        shards: which of the data set's records each device holds.
        held_out: int64 (n,), the records that the model is evaluated on: step sizes that wait for a
            better accuracy follow from them, and a score of them is a release.
    """
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
    text = json.dumps(released(config), sort_keys=True)
    draws = seeded(config.seed, digest_of(text, arrays))
    if config.partition.held_out_by == "devices":
        return replace(draws, sampling=KeyedStreams(config.seed, digest_of(text, ())))
    return draws
