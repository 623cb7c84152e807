"""A whole run: rounds, evaluations, and what the rounds have cost so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice

import pandas as pd
import torch
from torch import Tensor

from m2fdp.errors import InputError
from m2fdp.simulation.engine import rounds
from m2fdp.simulation.evaluation import Evaluation, evaluate
from m2fdp.simulation.simulation import Simulation, State, initial_state

# So many times the loss of equal scores is no longer a bad model, but none.
_DIVERGED = 10.0


@dataclass(frozen=True)
class RoundRecord:
    """One evaluated round; `m2fdp.simulation.training.train` keeps a row of each.

    Attributes:
        round: t.
        accuracy, loss: on the records the cloud holds.
        energy_j, delay_s: cumulative, joules and seconds.
        epsilon: verified so far, or NaN without privacy.
    """

    round: int
    accuracy: float
    loss: float
    energy_j: float
    delay_s: float
    epsilon: float


@dataclass(frozen=True, eq=False)
class Round:
    """A finished round.

    Attributes:
        state: after it.
        energy_j, delay_s: of all rounds so far, joules and seconds.
        decisions: what a controller has decided for it, by name.
        smoothness: the estimate of beta after it, where one is made.
    """

    state: State
    energy_j: float
    delay_s: float
    decisions: Mapping[str, float] = field(default_factory=dict)
    smoothness: float | None = None


@dataclass(frozen=True)
class Observer:
    """What a caller wants to hear while training goes on.

    Attributes:
        on_round: (the round, its wall seconds), after every round.
        on_evaluation: after every evaluated round.
    """

    on_round: Callable[[Round, float], None]
    on_evaluation: Callable[[RoundRecord], None]


@dataclass(frozen=True, eq=False)
class Progress:
    """What a run has reached.

    Attributes:
        state: after the last finished round.
        records: of the evaluated rounds.
        decisions: of a controller, for every round.
        smoothness: the estimate of beta, where one is made.
    """

    state: State
    records: tuple[RoundRecord, ...] = ()
    decisions: tuple[Mapping[str, float], ...] = ()
    smoothness: float | None = None


@dataclass(frozen=True)
class Checkpointing:
    """Keep what a run has reached every so many rounds, and when it is interrupted."""

    every: int
    save: Callable[[Progress], None]


# The rounds that are left, from what has been reached.
Course = Callable[[Progress], Iterator[Round]]


def equal_rounds(simulation: Simulation, energy_j: float, delay_s: float) -> Course:
    """The course of a run whose every round is as scheduled and costs the same."""

    def course(reached: Progress) -> Iterator[Round]:
        for state in rounds(simulation, reached.state):
            yield Round(state, state.round * energy_j, state.round * delay_s)

    return course


def train(
    simulation: Simulation,
    course: Course,
    features: Tensor,
    labels: Tensor,
    evaluate_every: int,
    planned_rounds: int,
    observer: Observer,
    start: Progress | None = None,
    checkpointing: Checkpointing | None = None,
) -> tuple[State, pd.DataFrame]:
    """Train all rounds, evaluating every so many and after the last.

    Args:
        features, labels: the records that the cloud evaluates on, (R, C, H, W) and (R,).
        planned_rounds: train so many of the course's rounds.
        start: what the run has reached before; its weights may be on any device.

    Returns:
        The final state, and a table with a row a `RoundRecord` and what was decided for it.

    Raises:
        InputError: the model has diverged.
    """
    reached = _start(simulation, start)
    try:
        left = planned_rounds - reached.state.round
        started = time.perf_counter()
        for round_ in islice(course(reached), left):
            observer.on_round(round_, time.perf_counter() - started)
            state, records = round_.state, reached.records
            if state.round % evaluate_every == 0 or state.round == planned_rounds:
                result = _evaluate(simulation, round_, features, labels)
                private = simulation.mechanism.private
                record = RoundRecord(
                    state.round,
                    result.accuracy,
                    result.loss,
                    round_.energy_j,
                    round_.delay_s,
                    simulation.mechanism.epsilon(state.round) if private else math.nan,
                )
                observer.on_evaluation(record)
                records = (*records, record)
            # One assignment: an interrupt finds a round with its row or without both.
            decisions = (*reached.decisions, round_.decisions)
            reached = Progress(state, records, decisions, round_.smoothness)
            if checkpointing is not None and state.round % checkpointing.every == 0:
                checkpointing.save(reached)
            started = time.perf_counter()
    except KeyboardInterrupt as interrupt:
        if checkpointing is not None and reached.state.round > 0:
            checkpointing.save(reached)
            interrupt.add_note(f"round {reached.state.round} is saved")
        raise
    rows = [asdict(record) | reached.decisions[record.round - 1] for record in reached.records]
    return reached.state, pd.DataFrame(rows)


def divergence(simulation: Simulation, metrics: pd.DataFrame, n_classes: int) -> str | None:
    """A line where a run ended far above the loss of knowing nothing, all scores equal; else None.

    Args:
        metrics: of `train`.
    """
    scores, labels = torch.zeros(n_classes, n_classes), torch.arange(n_classes)
    chance = float(simulation.model.loss(scores, labels).mean())
    loss = float(metrics["loss"].iloc[-1])
    if loss <= _DIVERGED * chance:
        return None
    key = "control.step_size_factor" if "eta" in metrics else "training.learning_rate"
    return (
        f"training diverged or drowned in noise: the last loss is {loss:.3g}, and equal scores for "
        f"all classes have {chance:.3g}; choose a smaller {key}"
    )


def _start(simulation: Simulation, start: Progress | None) -> Progress:
    if start is None:
        return Progress(initial_state(simulation))
    weights = start.state.weights.to(simulation.shards.features)
    return replace(start, state=replace(start.state, weights=weights))


def _evaluate(
    simulation: Simulation, round_: Round, features: Tensor, labels: Tensor
) -> Evaluation:
    model, workers, state = simulation.model, simulation.workers, round_.state
    result = evaluate(model, state.weights, features, labels, workers)
    if not math.isfinite(result.loss):
        key, value = "training.learning_rate", simulation.schedule.learning_rate
        if "eta" in round_.decisions:
            key, value = "control.step_size_factor", f"eta {round_.decisions['eta']:.3g}"
        raise InputError(
            key, value, f"training diverged by round {state.round}; choose a smaller one"
        )
    return result
