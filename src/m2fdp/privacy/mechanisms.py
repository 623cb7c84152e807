"""The two mechanisms: what a local step clips, and who adds how much noise to what.

`upload` (the papers'): the minibatch gradient is clipped and the model message is noised.
`gradient`: each record's gradient is clipped and every local step is noised, at the node that
the noise plan names; a trusted server and all devices below it step together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from m2fdp.privacy.ledger import Ledger
from m2fdp.topology.network import Network, heads_of, no_noise


@dataclass(frozen=True)
class Clipping:
    """What bounds one local step.

    Attributes:
        record_norm: the norm each record's gradient is clipped to, or None.
        batch_norm: the norm the minibatch gradient is clipped to, or None.
        update_norm: the norm, in units of eta, that a device's whole update between two
            synchronisations is clipped to, or None.
        by_class: whether a record's gradient is clipped class by class, each class to
            record_norm / sqrt(classes), which keeps one-vs-rest losses convex.
        divide_by: the clipped sum is divided by the `drawn` minibatch size (J eq. 6) or by
            the `expected` one, which is public and the same for neighbours.
    """

    divide_by: Literal["drawn", "expected"]
    record_norm: float | None = None
    batch_norm: float | None = None
    update_norm: float | None = None
    by_class: bool = False


@dataclass(frozen=True, eq=False)
class LockStep:
    """Which devices step together, as one learner, under `gradient`.

    Attributes:
        nodes: int64 (G, 2), the (layer, index) of the node at the head of each group.
        group_of: int64 (N_L,), each device's group.
        weights: float64 (N_L,), the product of rho on the path from the device to the head.
    """

    nodes: np.ndarray
    group_of: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise standard deviations, all in units of the step size eta.

    Attributes:
        steps: float64 (G,) per lock-step group, added to its gradient at every local step.
        messages: for layer l = 0…L, float64 (N_l,), added to the node's message to its parent, and by
            the cloud to what it broadcasts at a round's end.
        broadcasts: for layer l = 0…L-1, float64 (N_l,), added by a trusted server to what it
            broadcasts after a local aggregation.
    """

    steps: np.ndarray
    messages: tuple[np.ndarray, ...]
    broadcasts: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Mechanism:
    """Everything the privacy configuration decides about a run.

    Attributes:
        clipping, lock_step, noise: see these types.
        private: whether it clips and noises at all.
        ledger: what every observer learns.
    """

    clipping: Clipping
    lock_step: LockStep
    noise: Noise
    private: bool
    ledger: Ledger

    def epsilon(self, rounds: int) -> float:
        """Verified epsilon after some rounds: the largest over records and distrusted observers."""
        return self.ledger.verified(rounds)

    def affordable_rounds(self, budget: float | None) -> int:
        """How many of the planned rounds stay within a budget; all of them without one."""
        planned = len(self.ledger.plans)
        if budget is None or not self.private or self.epsilon(planned) <= budget:
            return planned
        within, beyond = 0, planned
        while beyond - within > 1:
            middle = (within + beyond) // 2
            if self.epsilon(middle) <= budget:
                within = middle
            else:
                beyond = middle
        return within


def step_together(network: Network) -> LockStep:
    """The groups of `gradient`: a noise-adding node and all devices below it."""
    tree = network.tree
    nodes, group_of = np.unique(heads_of(network), axis=0, return_inverse=True)
    head_layer = nodes[group_of, 0]
    weights = np.ones(tree.n_devices)
    for layer in np.unique(head_layer):
        weights[head_layer == layer] = network.shares(tree.depth, layer)[head_layer == layer]
    return LockStep(nodes, group_of, weights)


def step_alone(network: Network) -> LockStep:
    """Every device by itself."""
    tree = network.tree
    devices = np.arange(tree.n_devices)
    nodes = np.stack([np.full_like(devices, tree.depth), devices], axis=1)
    return LockStep(nodes, devices, np.ones(tree.n_devices))


def silence(network: Network, lock_step: LockStep) -> Noise:
    """No noise anywhere."""
    tree = network.tree
    return Noise(
        np.zeros(len(lock_step.nodes)),
        no_noise(tree),
        tuple(np.zeros(tree.n_nodes(layer)) for layer in range(tree.depth)),
    )
