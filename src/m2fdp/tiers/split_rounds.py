"""Rounds in which devices split their model with a server at every local step."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from m2fdp.core.engine.backends.reference import ReferenceBackend
from m2fdp.core.engine.backends.sequential import SequentialBackend
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.tiles import ExecutionSettings
from m2fdp.tiers.split_models import SplitModel
from m2fdp.tiers.split_steps import Host, Splits, Splitter, build_splitter


class SplitRound(Round):
    """A round whose devices step by a `splitter`."""

    draws = Round.draws | {"clients"}
    in_blocks = False  # activations are sent at every step
    by_device = True
    splitter: Splitter

    def descend(self, tile: range, step: int, batches: Minibatches, models: Tensor) -> None:
        units = self.learners.units_of(tile)
        owners = self.learners.learner_of_unit[units] - tile.start
        at, devices = (self.drawn.number, step), self.learners.device_of_unit[units]
        self.splitter.descend(self.plan, at, models, owners, devices, batches.select(units))


def in_splits(simulation: Simulation, settings: ExecutionSettings) -> type[Round] | None:
    """The rounds of a simulation whose devices split its model."""
    splitter = splitter_of(simulation, settings.backend)
    return None if splitter is None else split_by(SplitRound, splitter)


def split_by(kind: type[Round], splitter: Splitter) -> type[Round]:
    """The rounds, whose devices step by a splitter."""
    return type("SplitRound", (kind,), {"splitter": splitter})


def overheard(kind: type[Round], host: Host) -> type[Round]:
    """The rounds, of which a function hears what servers that nobody trusts receive."""
    if not issubclass(kind, SplitRound):
        return kind
    return split_by(kind, replace(kind.splitter, host=host))


def splitter_of(simulation: Simulation, backend: str) -> Splitter | None:
    """What steps the devices, where they split the model: one after the other, or, to be checked
    by eye (`reference`), one record after the other."""
    splits, model = simulation.part(Splits), simulation.model
    if splits is None or not isinstance(model, SplitModel):
        return None
    factor = simulation.rules.clip_factor
    way = ReferenceBackend if backend == "reference" else SequentialBackend
    return build_splitter(
        splits, model, simulation.mechanisms, simulation.randomness, lambda part: way(part, factor)
    )
