"""Where learners start a stretch of local steps, and what they last received."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.learners import Learners
from m2fdp.core.schedule.rounds import Center
from m2fdp.core.topology.tree import Tree


@dataclass(frozen=True, eq=False)
class Rows:
    """Models of the learners of one head layer: learner i's is `models[rows[i]]`."""

    models: Tensor
    rows: np.ndarray

    def of(self, part: slice, room: Tensor | None = None) -> Tensor:
        """(n, M), copies of those of some learners; into a given tensor, if there is one."""
        places = torch.as_tensor(self.rows[part], device=self.models.device)
        return torch.index_select(self.models, 0, places, out=room)


@dataclass(frozen=True, eq=False)
class Starts:
    """Where the learners of one head layer start.

    Attributes:
        current: models that they start from.
        received: the models that they last received: the same, unless an aggregation ended at or
            below their head, where a lock-step group is one learner that goes on by itself.
        first: the model that the round began with.
    """

    current: Rows
    received: Rows
    first: Rows

    def anchors(self, center: Center) -> Rows:
        """What a proximal term pulls to."""
        return self.first if center == "global" else self.received


def first_starts(learners: Learners, model: Tensor) -> dict[int, Starts]:
    """Everybody starts a round from the global model (M,): by head layer."""
    starts = {}
    for head_layer, of_layer in learners.ranges.items():
        rows = Rows(model[None], np.zeros(len(of_layer), dtype=np.int64))
        starts[head_layer] = Starts(rows, rows, rows)
    return starts


def next_starts(
    starts: dict[int, Starts],
    learners: Learners,
    tree: Tree,
    models: Tensor,
    layer: int,
    unreached: dict[int, Tensor],
) -> dict[int, Starts]:
    """Learners below a layer take the model of their ancestor there; the others keep their own.

    Args:
        starts: those of the stretch before, by head layer.
        models: (N_l, M), that layer's.
        unreached: models (n, M), by head layer, of the learners that keep their own.
    """
    result = {}
    for head_layer, of_layer in learners.ranges.items():
        before = starts[head_layer]
        if head_layer > layer:
            heads = learners.heads[of_layer.start : of_layer.stop, 1]
            received = Rows(models, tree.ancestors_of(head_layer, layer)[heads])
            result[head_layer] = Starts(received, received, before.first)
        else:
            rows = Rows(unreached[head_layer], np.arange(len(of_layer)))
            result[head_layer] = Starts(rows, before.received, before.first)
    return result
