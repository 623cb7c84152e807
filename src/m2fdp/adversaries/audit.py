"""Run copies and score what an observer saw of each, to bound epsilon from below, until they refute
the ledger or no more may be run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.special import logsumexp
from scipy.stats import binom
from torch import Tensor

from m2fdp.adversaries.canaries import AuditedRun, Canaries, plant
from m2fdp.adversaries.config import AuditConfig
from m2fdp.adversaries.evidence import largest_bound, no_evidence, weigh
from m2fdp.adversaries.heard import heard_by
from m2fdp.adversaries.tried_runs import single_releases
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.engine.process import State
from m2fdp.core.engine.rules import KeepingRule, keeping
from m2fdp.core.privacy.accounting import ShiftLaw
from m2fdp.core.privacy.calibration import nominal_epsilon
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.privacy.positions import Position, position_name
from m2fdp.core.privacy.releases import Release
from m2fdp.core.privacy.sight import receiver

# Copies of each world that run together at first; later as many as have run.
_FIRST_COPIES = 50
# Of these, copies that no bet is on: they show centre and spread.
_SET_ASIDE = 10


@dataclass(frozen=True)
class Bounds:
    """What an audit found about one observer.

    Attributes:
        position, observer: of the audited line of the ledger.
        epsilon_lower: the lower bound at the audit's confidence.
        epsilon_upper: the ledger's, for the same rounds.
        epsilon_nominal: see `m2fdp.core.privacy.calibration.nominal_epsilon`.
        largest_lower: more can't be shown with so many repetitions.
        rounds, releases: that the observer saw.
        repetitions: copies of each world that were run; fewer where they refute the ledger.
    """

    position: str
    observer: str
    epsilon_lower: float
    epsilon_upper: float
    epsilon_nominal: float
    largest_lower: float
    delta: float
    confidence: float
    rounds: int
    releases: int
    repetitions: int


def audit(run: AuditedRun, rounds: int, config: AuditConfig, seed: int) -> list[Bounds]:
    """Audit, for every layer whose nodes add noise, the position that the ledger bounds highest.

    The observer is whoever receives the head's noised messages: its parent, or, where the cloud is
    the head, whoever is broadcast the global model.
    """
    if not run.mechanism.private:
        raise ValueError("without noise there is no bound to audit")
    result = []
    for line in audited_lines(run.mechanism.ledger, rounds):
        batches = _batches(run, line.position, config.repetitions, seed)
        result.append(audit_line(run, batches, line, rounds, config))
    return result


def audited_lines(ledger: Ledger, rounds: int) -> list[Release]:
    """The line of who receives from the head, for the most exposed position of every head layer."""
    by_layer: dict[int, list[Release]] = {}
    for line in ledger.lines:
        if line.kind == receiver(line.position):
            by_layer.setdefault(line.position.head_layer, []).append(line)
    return [max(each, key=lambda line: ledger.epsilon(line, rounds)) for each in by_layer.values()]


def _batches(run: AuditedRun, position: Position, most: int, seed: int) -> Iterator[Canaries]:
    """So many copies of each world, planted as they are asked for."""
    planted = 0
    while planted < most:
        more = min(max(planted, _FIRST_COPIES), most - planted)
        yield plant(run, position, 2 * more, seed, 2 * planted)
        planted += more


def audit_line(
    run: AuditedRun, batches: Iterable[Canaries], line: Release, rounds: int, config: AuditConfig
) -> Bounds:
    """Run copies for so many rounds, until they show more than the ledger's line allows."""
    privacy, ledger, alpha = run.privacy, run.mechanism.ledger, 1 - config.confidence
    upper = ledger.epsilon(line, rounds)
    evidence = no_evidence(config.repetitions - _SET_ASIDE, privacy.delta, alpha)
    both, seen = privacy.adjacency == "replace_one", _SET_ASIDE
    heard: list[tuple[np.ndarray, np.ndarray]] = []
    for canaries in batches:
        releases = listen(canaries, rounds)
        heard.append((releases[..., ~canaries.present], releases[..., canaries.present]))
        worlds = [np.concatenate(world, axis=-1) for world in zip(*heard, strict=True)]
        laws, planted = window_laws(line, canaries, privacy), worlds[0].shape[-1]
        while seen < planted:  # copies before show centre and spread
            some = slice(seen, min(2 * seen, planted))
            known = worlds[0][..., :seen]
            scores = (log_ratios(world[..., some], laws, known, both) for world in worlds)
            evidence, seen = weigh(evidence, *scores), some.stop
        if evidence.bound > upper:
            break
    return Bounds(
        position_name(line.position),
        line.observer,
        evidence.bound,
        upper,
        nominal_epsilon(ledger, rounds, privacy),
        largest_bound(seen - _SET_ASIDE, privacy.delta, alpha),
        privacy.delta,
        config.confidence,
        rounds,
        releases.shape[0] * releases.shape[1],
        seen,
    )


def listen(canaries: Canaries, rounds: int) -> np.ndarray:
    """How far each release lies from the mean of the public models in it, along the canary's push
    and over the step size. Where models are bounded themselves: what they are in the copies.
    float64 (rounds, releases a round, copies)."""
    process, public = canaries.process, canaries.public
    simulation = process.simulation
    ancestors, audited = simulation.networks[0].tree.ancestors, canaries.audited
    state, of_rounds = process.start(), list[list[np.ndarray]]()
    releases: list[np.ndarray] = []
    sends_models = simulation.mechanisms[0].clipping.of_models

    def release(models: Tensor, layer: int) -> None:
        nodes = ancestors[layer]
        if sends_models:  # wherever they come from
            releases.append(models[nodes[audited], 0].numpy().copy())
            return
        received, expected = models[nodes[audited], 0].numpy(), public[:, 0].numpy()
        steps = len(single_releases(plan, canaries.head_layer)[len(releases)].layers)
        if (rule := keeping(simulation.rules.local)) is not None:
            expected = _unmoved(canaries, rule, state, steps, eta)
        if plan.center == "global":  # which the proximal term has pulled to since
            gone = 1 - (1 - plan.pull) ** steps
            expected = expected + gone * (float(canaries.origin[0]) - expected)
        releases.append((received - expected[audited]) / eta)

    def tap(direction: Literal["up", "down"], layer: int, models: Tensor) -> None:
        if direction == "up" and layer == canaries.head_layer:
            release(models, layer)
        elif direction == "down" and layer < canaries.head_layer:
            public.copy_(models[ancestors[layer]])

    heard = heard_by(process, tap)
    for plan in canaries.plans[:rounds]:
        eta = plan.step_size
        public.copy_(state.weights.expand_as(public))
        canaries.origin.copy_(state.weights)
        canaries.parts.copy_(1 - (1 - plan.pull) ** torch.arange(len(canaries.parts)))
        state = heard.round(state, plan)
        of_rounds.append(releases.copy())
        releases.clear()
    return np.array(of_rounds)


def _unmoved(
    canaries: Canaries, rule: KeepingRule, state: State, steps: int, eta: float
) -> np.ndarray:
    """Where so many steps that no record moves take each device, float64 (N_L,), by what it keeps
    since the round before: whoever reads its reports knows."""
    lock_step = canaries.process.simulation.mechanisms[0].lock_step
    slots: dict[str, Tensor] = {}
    for name, first in rule.first(state.weights).items():
        of_learners = state.slots.device.get(name, first.expand(len(lock_step.nodes), -1))
        slots[name] = of_learners[lock_step.group_of].clone()
    models = canaries.public.clone()
    bound_rule = rule.of(slots, state.slots.server)
    for _ in range(steps):
        bound_rule.step(models, canaries.public, eta, lambda models: None)
    return models[:, 0].numpy()


def window_laws(line: Release, canaries: Canaries, privacy: PrivacyConfig) -> list[ShiftLaw]:
    """For each release of a round, how far a canary moves it, over the step size."""
    result = []
    for plan in single_releases(canaries.plan, line.position.head_layer):
        ((law, count),) = line.laws(line.position, plan)
        if get_mechanism(privacy.mechanism).clipping(privacy).of_models:
            count = 1  # the copies' canary moves no device but its own
        if count > 1:  # the message holds the sum of several noised steps
            numbers = np.arange(count + 1)
            chances = binom.pmf(numbers, count, law.moved)
            law = ShiftLaw(tuple(numbers * law.largest), tuple(chances))
        result.append(law.scaled(line.position.unit * canaries.scale * canaries.share))
    return result


def log_ratios(
    releases: np.ndarray, laws: Sequence[ShiftLaw], calibration: np.ndarray, both: bool
) -> np.ndarray:
    """The log likelihood ratio of all releases of a copy, that the canary is there over that it is
    not, float64 (copies,).

    Centre and spread of every window come from other copies, so that noise of any size gets the
    test that suits it.

    Args:
        releases: float64 (rounds, releases a round, copies).
        calibration: float64 (rounds, releases a round, others), of copies without the canary.
        both: whether a copy without the canary has its opposite instead (replace_one).
    """
    scores = np.zeros(releases.shape[-1])
    for window, law in enumerate(laws):
        centre = 0.0 if both else calibration[:, window].mean()
        spread = max(float(calibration[:, window].std()), 1e-12)
        shifts = np.array(law.shifts) / spread
        chances = np.array(law.probabilities)
        for values in releases[:, window]:
            moved = (values - centre) / spread
            scores += _log_ratio(moved, shifts, chances)
            if both:
                scores -= _log_ratio(-moved, shifts, chances)
    # What is no number would else end all bets, and tells of a record that made it so.
    return np.where(np.isnan(scores), np.inf, scores)


def _log_ratio(moved: np.ndarray, shifts: np.ndarray, chances: np.ndarray) -> np.ndarray:
    return logsumexp(moved[:, None] * shifts - shifts**2 / 2, axis=1, b=chances)
