"""A whole run: rounds, evaluations, and what each round has cost so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import pandas as pd
from torch import Tensor

from m2fdp.errors import InputError
from m2fdp.simulation.engine import Simulation, State, initial_state, rounds
from m2fdp.simulation.evaluation import Evaluation, evaluate


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


@dataclass(frozen=True)
class Observer:
    """What a caller wants to hear while training goes on.

    Attributes:
        on_round: (round, wall seconds of that round), after every round.
        on_evaluation: after every evaluated round.
    """

    on_round: Callable[[int, float], None]
    on_evaluation: Callable[[RoundRecord], None]


@dataclass(frozen=True, eq=False)
class Progress:
    """What a run has reached: the state after its last finished round, and its rows so far."""

    state: State
    records: tuple[RoundRecord, ...] = ()


@dataclass(frozen=True)
class Checkpointing:
    """Keep what a run has reached every so many rounds, and when it is interrupted."""

    every: int
    save: Callable[[Progress], None]


def train(
    simulation: Simulation,
    features: Tensor,
    labels: Tensor,
    evaluate_every: int,
    round_energy_j: float,
    round_delay_s: float,
    planned_rounds: int,
    observer: Observer,
    start: Progress | None = None,
    checkpointing: Checkpointing | None = None,
) -> tuple[State, pd.DataFrame]:
    """Train all rounds, evaluating every so many and after the last.

    Args:
        features, labels: the records that the cloud evaluates on, (R, C, H, W) and (R,).
        round_energy_j, round_delay_s: what one round costs.
        planned_rounds: train so many of the schedule's rounds.
        start: what the run has reached before; its weights may be on any device.

    Returns:
        The final state, and a table with a row a `RoundRecord`.

    Raises:
        InputError: the model has diverged.
    """
    reached = _start(simulation, start)
    try:
        left = planned_rounds - reached.state.round
        started = time.perf_counter()
        for state in islice(rounds(simulation, reached.state), left):
            observer.on_round(state.round, time.perf_counter() - started)
            records = reached.records
            if state.round % evaluate_every == 0 or state.round == planned_rounds:
                result = _evaluate(simulation, state, features, labels)
                private = simulation.mechanism.private
                record = RoundRecord(
                    state.round,
                    result.accuracy,
                    result.loss,
                    state.round * round_energy_j,
                    state.round * round_delay_s,
                    simulation.mechanism.epsilon(state.round) if private else math.nan,
                )
                observer.on_evaluation(record)
                records = (*records, record)
            # One assignment: an interrupt finds a round with its row or without both.
            reached = Progress(state, records)
            if checkpointing is not None and state.round % checkpointing.every == 0:
                checkpointing.save(reached)
            started = time.perf_counter()
    except KeyboardInterrupt as interrupt:
        if checkpointing is not None and reached.state.round > 0:
            checkpointing.save(reached)
            interrupt.add_note(f"round {reached.state.round} is saved")
        raise
    return reached.state, pd.DataFrame(list(reached.records))


def _start(simulation: Simulation, start: Progress | None) -> Progress:
    if start is None:
        return Progress(initial_state(simulation))
    weights = start.state.weights.to(simulation.shards.features)
    return Progress(replace(start.state, weights=weights), start.records)


def _evaluate(simulation: Simulation, state: State, features: Tensor, labels: Tensor) -> Evaluation:
    model, workers = simulation.model, simulation.workers
    result = evaluate(model, state.weights, features, labels, workers)
    if not math.isfinite(result.loss):
        raise InputError(
            "training.learning_rate",
            simulation.schedule.learning_rate,
            f"training diverged by round {state.round}; choose a smaller one",
        )
    return result
