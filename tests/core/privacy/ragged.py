"""A ragged and deep tree, and how two runs part on it, device by device."""

import numpy as np
from hypothesis import strategies as st

from m2fdp.core.privacy.taint import Steps
from m2fdp.given.edges import tree_from_edges

# The head is "h" at layer 1, device "x" the owner of the record.
RAGGED = [("c", "h"), ("h", "a"), ("h", "b"), ("h", "e"), ("a", "a1"), ("a", "a2"), ("b", "b1")]
RAGGED += [("e", "e1"), ("e", "e2"), ("e", "e3")]
RAGGED += [("a1", "x"), ("a1", "1"), ("a1", "2"), ("a2", "3"), ("b1", "4"), ("b1", "5")]
RAGGED += [("e1", "6"), ("e2", "7"), ("e2", "8"), ("e3", "9")]
TREE = tree_from_edges(RAGGED)

SYNCHRONISATIONS = st.lists(st.sampled_from([None, None, 1, 2, 3]), min_size=0, max_size=8)
OWNERS = st.integers(0, TREE.n_devices - 1)


def weights_below(layer):
    """(N_L,): every device's weight in the model of its ancestor at a layer."""
    weights = np.ones(TREE.n_devices)
    for at in range(layer + 1, TREE.depth + 1):
        weights *= TREE.uniform_weights[at - 1][TREE.ancestors[at]]
    return weights


def synchronised(models, layer):
    """Every device's model (N_L,) or (N_L, M) after those below its ancestor were averaged."""
    family = TREE.ancestors[layer]
    sums = np.zeros((family.max() + 1, *models.shape[1:]))
    np.add.at(sums, family, (weights_below(layer) * models.T).T)
    return sums[family]


def path_shares(owner):
    return tuple(
        TREE.uniform_weights[layer - 1][TREE.ancestors[layer][owner]]
        for layer in range(2, TREE.depth + 1)
    )


def simulated(syncs, owner, first, pull=Steps(), others=1.0, per_sync=False):  # noqa: B008
    """The largest difference of the release where the record enters at the step `first`.

    Args:
        others: what a step adds to other devices that differ already.
        per_sync: whether a whole stretch between synchronisations adds as much.
    """
    difference = np.zeros(TREE.n_devices)
    center = difference.copy()
    for step, sync in enumerate(syncs, start=1):
        if step >= first and (not per_sync or sync is not None or step == len(syncs)):
            touched = difference > 0
            touched[owner] = False
            difference += pull.part * (center - difference)
            difference[touched] += others
            difference[owner] += 1.0
        if sync is not None:
            difference = synchronised(difference, sync)
            center = difference.copy() if pull.received else center
    return float(weights_below(1) @ difference)
