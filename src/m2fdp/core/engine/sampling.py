"""Poisson-sampled minibatches (J eq. 6), drawn for all devices of a step at once."""

from typing import cast

import numpy as np

from m2fdp.core.engine.philox import WORDS
from m2fdp.core.streams import Streams
from m2fdp.core.topology.network import Network


def sampling_rates(sizes: np.ndarray, batch_size: float | None) -> np.ndarray:
    """q_j = min(1, B/D_j) per device, float64; B null means the whole shard."""
    if batch_size is None:
        return np.ones(len(sizes))
    return np.minimum(1.0, batch_size / sizes)


def poisson_draw(
    rates: np.ndarray, streams: Streams, round_: int, step: int, first: int = 0
) -> np.ndarray:
    """The records of one local step: int64 (m,), positions in order. Each enters independently with
    its probability in rates, float64 (R,).

    A step has its own stream; a record's number there is its position among all records. `first` is
    that of the part's first record.
    """
    if ((rates == 0.0) | (rates == 1.0)).all():
        return np.flatnonzero(rates)
    stream = streams.generator("minibatch", round_, step)
    skipped_words, rest = divmod(first, WORDS)  # a number is made of one word
    cast(np.random.Philox, stream.bit_generator).advance(skipped_words)
    stream.random(rest)
    return np.flatnonzero(stream.random(len(rates)) < rates)


def draw_participants(network: Network, streams: Streams, round_: int) -> np.ndarray:
    """The devices that take part in a round, bool (N_L,): a number below each lowest server, drawn
    uniformly, or each with a probability."""
    if network.participation is not None:
        rate, n_devices = network.participation.rate, network.tree.n_devices
        return streams.generator("participation", round_).random(n_devices) < rate
    present, children = network.present, network.tree.n_children(network.tree.depth - 1)
    if (present == children).all():
        return np.ones(network.tree.n_devices, dtype=bool)
    order = streams.generator("participants", round_).random(network.tree.n_devices)
    return network.tree.sibling_rank(order) < present[network.tree.parents[-1]]
