"""Rounds that somebody listens to: every message up, and every broadcast of a local aggregation."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import Aggregator, build_aggregator
from m2fdp.core.engine.process import Process
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.seams import Stretch
from m2fdp.core.engine.tree_process import OneProcess, TreeProcess

# A listener, called with the direction, the layer l of the senders, and the models (N_l, M) sent.
Tap: TypeAlias = Callable[[Literal["up", "down"], int, Tensor], None]
# A listener, called with the models (n, M) of nodes int64 (n,) of a layer that are noised and not
# sent: of learners after a noised step, or of the cloud before its server rule. It may write there.
Inside: TypeAlias = Callable[[Literal["step", "cloud"], int, np.ndarray, Tensor], None]


def heard_by(process: Process, tap: Tap, inside: Inside = lambda *heard: None) -> Process:
    """The rounds of a process, heard by a tap and computed here; other draws of the same law.

    Where nobody listens, noises that only feed a sum are drawn as one. Only rounds of a tree have
    something `inside`.
    """
    if isinstance(process, TreeProcess):
        listeners = {"tap": staticmethod(tap), "inside": staticmethod(inside)}
        kind = type("HeardRound", (Heard, process.kind), listeners)
        return replace(process, kind=kind, executor=OneProcess(process.executor.workers))
    listened = cast(Any, copy(process))
    round_ = listened.round
    listened.round = lambda state, plan: round_(state, plan, tap)
    return cast(Process, listened)


class Heard(Round):
    """A round of the whole that is heard: every message has a noise of its own."""

    heard = True
    tap: Tap
    inside: Inside
    sent: Tensor | None = None  # (N_L, M), what devices send

    def aggregator(self, step: int) -> Aggregator:
        """The cloud adds up messages as they come, not by blocks."""
        blocks = np.zeros(self.tree.n_nodes(1), dtype=np.int64)
        return build_aggregator(self.weighing(step), self.simulation.shards.features, blocks)

    def noise_step(self, stretch: Stretch, tile: range, step: int, models: Tensor) -> None:
        super().noise_step(stretch, tile, step, models)
        if self.mechanism.noise.in_steps:
            (layer, *_), nodes = self.learners.heads[tile.start : tile.stop].T
            self.inside("step", int(layer), nodes, models)

    def noise_sum(self, step: int, top: int, models: Tensor) -> None:
        """Nothing: each message has its own."""

    def receive(
        self,
        aggregator: Aggregator,
        sums: dict[int, Tensor],
        layer: int,
        nodes: np.ndarray,
        models: Tensor,
    ) -> None:
        if layer < self.tree.depth:
            super().receive(aggregator, sums, layer, nodes, models)
            return
        if self.sent is None:
            self.sent = models.new_zeros(self.tree.n_devices, models.shape[1])
        self.sent[nodes] = models

    def climb(self, aggregator: Aggregator, sums: dict[int, Tensor], step: int, top: int) -> Tensor:
        if self.sent is not None:
            devices, messages, self.sent = self.tree.depth, self.sent, None
            self.send(step, top, devices, messages)
            of_layer = self.learners.ranges[devices]
            nodes = self.learners.heads[of_layer.start : of_layer.stop, 1]
            super().receive(aggregator, sums, devices, nodes, messages[nodes])
        return super().climb(aggregator, sums, step, top)

    def send(self, step: int, top: int, layer: int, messages: Tensor) -> None:
        """Noise what nodes of a layer send, (N_l, M), in place, and tell it."""
        super().send(step, top, layer, messages)
        messages.add_(self.message_noise(step, top, layer, messages))
        self.tap("up", layer, messages)

    def message_noise(self, step: int, top: int, layer: int, messages: Tensor) -> Tensor:
        """What nodes of a layer add to what they send, (N_l, M)."""
        noise, scales = torch.zeros_like(messages), self.mechanism.noise.sent(top)[layer]
        sends = self.drawn.present if layer == self.tree.depth else True
        self.noise.add(step, "message-noise", layer, scales * sends, noise)
        return noise

    def hand_down(self, step: int, top: int, models: Tensor) -> None:
        super().hand_down(step, top, models)
        if top > 0:
            self.tap("down", top, models)
        else:
            self.inside("cloud", 0, np.zeros(1, dtype=np.int64), models)

    def at_cloud(self, sums: Tensor) -> Tensor:
        model = super().at_cloud(sums)
        self.inside("cloud", 0, np.zeros(1, dtype=np.int64), model)
        return model
