"""A whole run: rounds, evaluations, and what the rounds have cost so far."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.core.engine.evaluation import Evaluation
from m2fdp.core.engine.lengths import any_length, refuse_too_long
from m2fdp.core.engine.process import Named, Process, SitesLostError, Slots, State
from m2fdp.core.errors import InputError
from m2fdp.core.metrics import KEY
from m2fdp.core.models.registry import Model
from m2fdp.core.schedule.rounds import RoundPlan

_DIVERGED = 10.0  # times the loss of the classes' shares: no longer a bad model, but none
_LARGEST_LOSS = float(torch.finfo(torch.float32).max)  # stands for a loss that overflows

CourseState = Named  # what a round policy has seen; nobody else looks into it


@dataclass(frozen=True, eq=False)
class Decision:
    """The next round's plan; `logged` says why, as values by the name of the metric."""

    plan: RoundPlan
    logged: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundRecord:
    """One evaluated round t: the metrics of `m2fdp.core.metrics.EVALUATED`, and the user's own."""

    round: int
    accuracy: float
    loss: float
    energy_j: float
    delay_s: float
    epsilon: float
    own: Mapping[str, float] = field(default_factory=dict)

    @property
    def row(self) -> dict[str, Any]:
        values = asdict(self)
        return values | values.pop("own")


@dataclass(frozen=True)
class Measures:
    """What is measured of a run while it goes on.

    Attributes:
        every: rounds between two evaluations.
        evaluate: a function from a global model (M,) to its evaluation.
        spent: a function from t to the joules and seconds of the first t rounds.
        epsilon: a function from t to the verified epsilon, NaN without privacy.
        private: whether epsilon covers the records of the evaluation. Divergence is then judged by
            the model alone.
        own: names of the user's own metrics, by the names that the configuration gives.
    """

    every: int
    evaluate: Callable[[Tensor], Evaluation]
    spent: Callable[[int], tuple[float, float]]
    epsilon: Callable[[int], float]
    private: bool = False
    own: Mapping[str, str] = field(default_factory=dict)

    def diverged(self, weights: Tensor, loss: float) -> bool:
        """Whether a model (M,), or its loss, is no longer finite."""
        if self.private:
            return not bool(torch.isfinite(weights).all())
        return not math.isfinite(loss)


@dataclass(frozen=True)
class Listener:
    """Functions that a caller is called by: `on_round` with t, what was logged of the decision and
    the wall seconds, after every round; `on_evaluation` with the record of an evaluated round."""

    on_round: Callable[[int, Mapping[str, float], float], None]
    on_evaluation: Callable[[RoundRecord], None]


SILENT = Listener(lambda round_, logged, seconds: None, lambda record: None)


@dataclass(frozen=True, eq=False)
class Progress:
    """The state after a run's last round, the records of evaluated rounds, the logged values of all
    decisions, and the round policy's own state."""

    state: State
    records: tuple[RoundRecord, ...] = ()
    decisions: tuple[Mapping[str, float], ...] = ()
    course_state: CourseState = field(default_factory=dict)


class RoundPolicy(Protocol):
    """Decides the rounds of a run one after another: a fixed schedule, or a controller."""

    def start(self, state: State) -> CourseState:
        """What is known before the first round."""
        return {}

    def decide(self, reached: Progress) -> Decision:
        """The next round, from what the run has reached."""

    def learn(self, state: State, course_state: CourseState) -> CourseState:
        """What is known after a round that has ended in `state`."""
        return course_state


@dataclass(frozen=True)
class FixedRounds(RoundPolicy):
    """Every round as planned, t = 1…T; `told` logs a step size that is not the configured one."""

    rounds: tuple[RoundPlan, ...]
    told: bool = False

    def decide(self, reached: Progress) -> Decision:
        plan = self.rounds[reached.state.round]
        return Decision(plan, {"eta": plan.step_size} if self.told else {})


@dataclass(frozen=True)
class Checkpointing:
    """What a run has reached is saved every so many rounds, and when it is interrupted."""

    every: int
    save: Callable[[Progress], None]


class DivergenceError(ArithmeticError):
    """The model is no longer made of numbers."""

    def __init__(self, round_: int, step_size: float) -> None:
        self.round, self.step_size = round_, step_size
        super().__init__(f"training diverged by round {round_}")


@dataclass(frozen=True, eq=False)
class Run:
    """A run that is put together; `longest` is the length that a model may have before and after a
    round of step size eta (`m2fdp.core.privacy.rounding`)."""

    process: Process
    policy: RoundPolicy
    rounds: int
    measures: Measures
    longest: Callable[[float], float] = any_length

    def check_length(self, state: State, step_size: float) -> None:
        """Raise `TooLongError` if rounding the model could reveal a record."""
        length, longest = float(state.weights.double().norm()), self.longest(step_size)
        refuse_too_long(length, longest, step_size, f"by round {state.round}")


def train(
    run: Run,
    listener: Listener = SILENT,
    start: Progress | None = None,
    checkpointing: Checkpointing | None = None,
) -> tuple[State, pd.DataFrame]:
    """Train all rounds, from what the run has reached before; evaluate every so many and the last.

    Returns:
        The final state, and a table: a row is a `RoundRecord` and what was logged of its round.

    Raises:
        DivergenceError: the model is no longer made of numbers.
        TooLongError: rounding a model could reveal a record.
        SitesLostError: nobody is left who computes rounds.
        InputError: a metric of the user's own fails, or has the name of a decision. The rounds
            before it are saved.
    """
    reached = _start(run, start)
    measures = run.measures
    try:
        started = time.perf_counter()
        while reached.state.round < run.rounds:
            decision = run.policy.decide(reached)
            _refuse_taken(measures.own, decision)
            run.check_length(reached.state, decision.plan.step_size)
            state = run.process.round(reached.state, decision.plan)
            run.check_length(state, decision.plan.step_size)
            course_state = run.policy.learn(state, reached.course_state)
            listener.on_round(state.round, decision.logged, time.perf_counter() - started)
            records = reached.records
            if state.round % measures.every == 0 or state.round == run.rounds:
                result = measures.evaluate(state.weights)
                if measures.diverged(state.weights, result.loss):
                    raise DivergenceError(state.round, decision.plan.step_size)
                record = RoundRecord(
                    state.round,
                    result.accuracy,
                    result.loss if math.isfinite(result.loss) else _LARGEST_LOSS,
                    *measures.spent(state.round),
                    measures.epsilon(state.round),
                    result.own,
                )
                listener.on_evaluation(record)
                records = (*records, record)
            # One assignment: an interrupt finds a round with its row or without both.
            decisions = (*reached.decisions, decision.logged)
            reached = Progress(state, records, decisions, course_state)
            if checkpointing is not None and state.round % checkpointing.every == 0:
                checkpointing.save(reached)
            started = time.perf_counter()
    except (KeyboardInterrupt, SitesLostError) as interrupt:
        if checkpointing is not None and reached.state.round > 0:
            checkpointing.save(reached)
            interrupt.add_note(f"round {reached.state.round} is saved")
        raise
    except InputError as error:
        if error.key != KEY or checkpointing is None or reached.state.round == 0:
            raise
        checkpointing.save(reached)
        saved = f"round {reached.state.round} is saved; mend it and go on with resume=true"
        raise InputError(error.key, error.value, f"{error.remedy}; {saved}") from error
    rows = [{**record.row, **reached.decisions[record.round - 1]} for record in reached.records]
    return reached.state, pd.DataFrame(rows)


def divergence(model: Model, last_loss: float, shares: np.ndarray) -> str | None:
    """A warning, if the last loss is far above that of a model that knows only the classes' shares,
    float64 (C,). Many models begin at equal scores, so it must be above their loss too."""
    equal, by_shares = model.loss_of_equal_scores(len(shares)), model.loss_of_shares(shares)
    if last_loss <= max(equal, _DIVERGED * by_shares):
        return None
    return (
        f"training diverged or drowned in noise: the last loss is {last_loss:.3g}, and scores "
        f"that look at no record have {by_shares:.3g}"
    )


def _refuse_taken(own: Mapping[str, str], decision: Decision) -> None:
    for name, metric in own.items():
        if metric in decision.logged:
            raise InputError(KEY, name, f"is called {metric}, as a decision is; name it otherwise")


def _start(run: Run, start: Progress | None) -> Progress:
    first = run.process.start()
    if start is None:
        return Progress(first, course_state=run.policy.start(first))
    device, state = first.weights.device, start.state
    slots = Slots(_moved(state.slots.server, device), _moved(state.slots.device, device))
    return replace(
        start,
        state=State(state.round, state.weights.to(device), slots),
        course_state=_moved(start.course_state, device),
    )


def _moved(tensors: Named, device: torch.device) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}
