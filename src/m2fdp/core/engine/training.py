"""A whole run: rounds, evaluations, and what the rounds have cost so far."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.core.engine.process import Alone, Process, SitesLostError, Slots, State, Workers
from m2fdp.core.engine.rules import Named, any_length, refuse_too_long
from m2fdp.core.errors import InputError
from m2fdp.core.metrics import KEY, Metric
from m2fdp.core.models.registry import Model
from m2fdp.core.own_code import GIVEN
from m2fdp.core.schedule.rounds import RoundPlan

_DIVERGED = 10.0  # times the loss of the classes' shares: no longer a bad model, but none
_LARGEST_LOSS = float(torch.finfo(torch.float32).max)  # stands for a loss that overflows
_RECORDS_AT_A_TIME = 512

CourseState = Named  # what a round policy has seen; nobody else looks into it


@dataclass(frozen=True, eq=False)
class Decision:
    """The next round's plan; `logged` says why, as values by the name of the metric."""

    plan: RoundPlan
    logged: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracy, mean loss, the predicted labels (R,), and the user's own metrics by name. Of labels
    that are numbers, float32, the accuracy is NaN."""

    accuracy: float
    loss: float
    predictions: Tensor
    own: Mapping[str, float] = field(default_factory=dict)


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
    """What is measured of a run while it goes on."""

    every: int  # rounds between two evaluations
    evaluate: Callable[[Tensor], Evaluation]  # of a global model (M,)
    spent: Callable[[int], tuple[float, float]]  # joules and seconds of the first t rounds
    epsilon: Callable[[int], float]  # verified, of the first t rounds; NaN without privacy
    # Whether epsilon covers the records of the evaluation. Divergence is then judged by the model.
    private: bool = False
    # Names of the user's own metrics, by the names that the configuration gives.
    own: Mapping[str, str] = field(default_factory=dict)

    def record(self, state: State, step_size: float) -> RoundRecord:
        """What is measured after a round; a `DivergenceError` where model or loss is not finite."""
        result, round_ = self.evaluate(state.weights), state.round
        finite = math.isfinite(result.loss)
        if not (torch.isfinite(state.weights).all() if self.private else finite):
            raise DivergenceError(round_, step_size)
        loss = result.loss if finite else _LARGEST_LOSS
        costs = *self.spent(round_), self.epsilon(round_)
        return RoundRecord(round_, result.accuracy, loss, *costs, result.own)


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
    reached, measures = _start(run, start), run.measures
    try:
        started = time.perf_counter()
        while reached.state.round < run.rounds:
            decision = run.policy.decide(reached)
            for name, metric in measures.own.items():
                if metric in decision.logged:
                    problem = f"is called {metric}, as a decision is; name it otherwise"
                    raise InputError(KEY, name, problem)
            step_size = decision.plan.step_size
            run.check_length(reached.state, step_size)
            state = run.process.round(reached.state, decision.plan)
            run.check_length(state, step_size)
            course_state = run.policy.learn(state, reached.course_state)
            listener.on_round(state.round, decision.logged, time.perf_counter() - started)
            records = reached.records
            if state.round % measures.every == 0 or state.round == run.rounds:
                records = (*records, measures.record(state, step_size))
                listener.on_evaluation(records[-1])
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


def _start(run: Run, start: Progress | None) -> Progress:
    first = run.process.start()
    if start is None:
        return Progress(first, course_state=run.policy.start(first))
    device, state = first.weights.device, start.state
    slots = Slots(_moved(state.slots.server, device), _moved(state.slots.device, device))
    state = State(state.round, state.weights.to(device), slots)
    return replace(start, state=state, course_state=_moved(start.course_state, device))


def _moved(tensors: Named, device: torch.device) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


# --- how good a global model is on the cloud's records -------------------------------------------


def evaluate(
    model: Model,
    weights: Tensor,
    features: Tensor,
    labels: Tensor,
    workers: Workers | None = None,
    metrics: Mapping[str, Metric] | None = None,
) -> Evaluation:
    """Evaluate the parameters (M,) on features (R, C, H, W) with labels (R,); workers share them.

    Raises:
        InputError: one of the user's own metrics fails, or makes no finite number.
    """
    workers = workers or Alone()
    n_classes = model.answers(weights, features[:1]).shape[1]
    scores = workers.room("scores", len(labels), n_classes, weights.dtype)
    score = partial(_score, model, weights, features, scores)
    fixed = (model, features, scores)
    workers.share("scores", np.ones(len(labels)), score, _RECORDS_AT_A_TIME, fixed)
    labels, predicted, accuracy = labels.cpu(), scores[:, 0], math.nan
    if not labels.is_floating_point():
        predicted = scores.argmax(dim=1)
        accuracy = float((predicted == labels).double().mean())
    losses = model.loss(scores, labels)
    loss, own = float(losses.double().mean()), {}
    if metrics and math.isfinite(loss):  # a model that is made of no numbers has none
        own = GIVEN["metrics.values"](metrics, labels.numpy(), scores.numpy(), losses.numpy())
    return Evaluation(accuracy, loss, predicted, own)


@torch.no_grad()
def _score(model: Model, weights: Tensor, features: Tensor, scores: Tensor, part: range) -> None:
    for start in range(part.start, part.stop, _RECORDS_AT_A_TIME):
        rows = slice(start, min(start + _RECORDS_AT_A_TIME, part.stop))
        scores[rows] = model.answers(weights, features[rows])


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, n_classes: int) -> pd.DataFrame:
    """The number of records of each true label (rows) and predicted label (columns)."""
    classes = pd.RangeIndex(n_classes)
    counts = np.bincount(labels * n_classes + predicted, minlength=n_classes**2)
    return pd.DataFrame(counts.reshape(n_classes, -1), classes.rename("label"), classes)


def one_class_only(counts: np.ndarray) -> str | None:
    """A warning, if a model answers one class only and some record is of another; counts are those
    of `confusion_matrix`, int64 (C, C)."""
    (answered,), of_class = counts.sum(axis=0).nonzero(), counts.sum(axis=1)
    if len(answered) > 1 or np.count_nonzero(of_class) == 1:
        return None
    share = float(of_class[answered[0]] / of_class.sum())
    return f"one class only, {answered[0]}: its accuracy is the share of that class, {share:.3f}"


def divergence(model: Model, last_loss: float, shares: np.ndarray) -> str | None:
    """A warning, if the last loss is far above that of a model that knows only the classes' shares,
    float64 (C,). Many models begin at equal scores, so it must be above their loss too."""
    equal, by_shares = model.loss_of_equal_scores(len(shares)), model.loss_of_shares(shares)
    if last_loss <= max(equal, _DIVERGED * by_shares * (len(shares) > 1)):
        return None
    return (
        f"training diverged or drowned in noise: the last loss is {last_loss:.3g}, and scores "
        f"that look at no record have {by_shares:.3g}"
    )
