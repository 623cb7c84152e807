"""What a run promises about privacy, and what a user must know before trusting it."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf
from typing import Any

from m2fdp.core.config import Config, PrivacyConfig
from m2fdp.core.formatting import EPSILON_NAMES, for_json, hardly_protects
from m2fdp.core.privacy.accounting import ACCOUNTANT, chance_of_use
from m2fdp.core.privacy.calibration import CalibratedMechanism, nominal_epsilon
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.privacy.positions import Position, position_name
from m2fdp.core.privacy.sight import LINKS, observers

# A record should be used with a chance of at least so many deltas: less, and delta pays for much.
_FEWEST_DELTAS = 10
SMOOTHNESS_ESTIMATED = (
    "the step sizes, which follow an estimate of beta made of un-noised gradients, tell nothing "
    "(control.smoothness declares beta instead)"
)
# What epsilon rests on and a run can't check: under every mechanism, by the unit, and by chance.
_ASSUMED = (
    "trusted servers are trustworthy, and nobody else reads the links into them",
    "tree, trust, shard sizes and schedule are public and independent of the private data",
    "the split is given: which records a device holds, which in some schemes depends on the "
    "labels of others, tells nothing",
    "fixed ranges, known beforehand, scale the records; the classes were known, too",
)
_OF_UNIT = {
    "device": "one person's records lie on one device",
    "record": "one person has one record: who has n of them is protected by about n times ε",
}
_OF_RUN = (
    "this run's model is all that is released about these records: the epsilons of several "
    "released runs add up, if each has a seed, and so minibatches and participants, of its own",
    "noise comes from a seeded generator: made for simulation",
    "the seed is secret: whoever knows it knows the noise and who was sampled (nodes of m2fdp "
    "plan draw from their operating systems instead)",
)
CLASSES = (
    "which classes there are is public, and none has a single training record: a model has a "
    "score for each class among the labels in dataset.root"
)


@dataclass(frozen=True)
class Promised:
    """What a room adds to what a run promises: sentences that epsilon rests on, and values for JSON
    by name."""

    assumptions: tuple[str, ...] = ()
    entries: Mapping[str, Any] = field(default_factory=dict)


def conditions_of(config: Config) -> list[str]:
    """The sentences that make a run's guarantee conditional by its configuration."""
    estimated = config.control.enabled and config.control.smoothness == "estimated"
    return [SMOOTHNESS_ESTIMATED] * estimated


def summary(
    mechanism: CalibratedMechanism,
    rounds: int,
    privacy: PrivacyConfig,
    conditions: Sequence[str] = (),
) -> dict[str, Any]:
    """What a run promises, with every assumption it rests on, ready for JSON: infinite epsilons are
    the text "inf". For conditions see `conditions_of`."""
    if not mechanism.private:
        note = "no clipping and no noise: epsilon is infinite for everybody"
        return {"guarantee": "none", "note": note}
    ledger, ways = mechanism.ledger, get_mechanism(privacy.mechanism)
    by_observer = {kind: for_json(value) for kind, value in ledger.by_kind(rounds).items()}
    of_account, rests_on = ledger.lines[0].account.promised(ledger.lines, rounds, privacy.unit)
    guarantee = "conditional" if conditions else "verified"
    drift = "none, models are clipped" if ways.clipping(privacy).of_models else "worst_case"
    if ways.noises_every_step:
        drift = "none, noise at every step"
    return {
        "guarantee": guarantee,
        "mechanism": privacy.mechanism,
        "calibration": privacy.calibration,
        "epsilon_nominal": nominal_epsilon(ledger, rounds, privacy),
        **_at_cloud(privacy),
        **({"conditions": list(conditions)} if conditions else {}),
        EPSILON_NAMES[guarantee]: for_json(mechanism.epsilon(rounds)),
        "delta": privacy.delta,
        "clipping_norm": privacy.clipping_norm,
        "accountant": ACCOUNTANT,
        "unit": privacy.unit,
        "adjacency": privacy.adjacency,
        "drift": drift,
        "sampling": "poisson",
        **of_account,
        "distrusted": sorted(ledger.bound),
        "epsilon_by_observer": by_observer,
        "assumptions": [
            *conditions,
            *_ASSUMED,
            _OF_UNIT[privacy.unit],
            *_OF_RUN,
            *ways.assumptions(privacy),
            *rests_on,
            *_pooled(ledger, rounds),
        ],
        "rounds": rounds,
        "rounds_planned": len(ledger.plans),
    }


def _at_cloud(privacy: PrivacyConfig) -> dict[str, float]:
    """epsilon_2 of G's rule, beside which epsilon_1 is the nominal one."""
    of_models = get_mechanism(privacy.mechanism).clipping(privacy).of_models
    if privacy.calibration != "paper" or not of_models:
        return {}
    return {"epsilon_nominal_cloud": privacy.epsilon_cloud or privacy.epsilon}


def _pooled(ledger: Ledger, rounds: int) -> list[str]:
    """What distrusted observers could learn together, where that may be more than each alone."""
    pooled = ledger.pooled(rounds)
    if pooled <= ledger.verified(rounds):
        return []
    return [
        "distrusted observers do not pool what they know, such as siblings their own noises: "
        f"pooled, they could learn up to ε {pooled:.3g}"
    ]


def warnings(
    mechanism: CalibratedMechanism,
    rounds: int,
    privacy: PrivacyConfig,
    conditions: Sequence[str] = (),
) -> list[str]:
    """One line for each thing that a user can change and should know before trusting epsilon."""
    if not mechanism.private:
        return []
    ledger, verified = mechanism.ledger, mechanism.epsilon(rounds)
    target = nominal_epsilon(ledger, rounds, privacy)
    lines = [f"ε is conditional: it holds if {condition}" for condition in conditions]
    lines += [f"ε rests on this: {line}" for line in _pooled(ledger, rounds)]
    lines += _paid_by_delta(ledger, rounds)
    if names := _could_learn_more(ledger, rounds, target, observers().keys() - LINKS):
        who, remedy = ", ".join(names), "name them in threat.distrusted, and it does"
        lines.insert(0, f"the target does not bind these, who could learn more: {who}; {remedy}")
    if weak := hardly_protects(verified):
        lines.append(weak)
    if verified > target:
        nominal = f"{target:g}" if privacy.noise_multiplier is None else f"{target:.3g}"
        nominal += "".join(f" and {cloud:g}" for cloud in _at_cloud(privacy).values())
        kind = "conditional" if conditions else "verified"
        lines.insert(0, f"{kind} ε {verified:.3g} exceeds the nominal {nominal}")
    return lines


def exposed_links(mechanism: CalibratedMechanism, rounds: int, privacy: PrivacyConfig) -> list[str]:
    """A line on the links that are taken to be closed and must be, if there are any."""
    if not mechanism.private:
        return []
    target = nominal_epsilon(mechanism.ledger, rounds, privacy)
    if not (names := _could_learn_more(mechanism.ledger, rounds, target, LINKS)):
        return []
    links = " and ".join(names)
    return [
        f"Whoever taps {links} without encryption could learn more than the target: use TLS, or "
        "name them in threat.open_links, and the target binds listeners too"
    ]


def _could_learn_more(
    ledger: Ledger, rounds: int, target: float, kinds: AbstractSet[str]
) -> list[str]:
    return [
        f"{kind} (ε {'∞' if value == inf else f'{value:.3g}'})"
        for kind, value in ledger.by_kind(rounds).items()
        if kind in kinds - ledger.distrusted and value > target
    ]


def _paid_by_delta(ledger: Ledger, rounds: int) -> list[str]:
    """A line where delta is much of the chance that the least used record is ever used: for a used
    record the promise may fail with delta over that chance."""
    found: dict[Position, tuple[float, float]] = {}
    for line in ledger.lines:
        if line.kind in ledger.distrusted and (one := ledger.composition(line, rounds)):
            chance, shift = found.get(line.position, (0.0, 0.0))
            largest = max(law.largest for law, _ in one)
            found[line.position] = max(chance, chance_of_use(one)), max(shift, largest)
    rarest = min(found, key=lambda position: found[position][0], default=None)
    if rarest is None or not 0 < found[rarest][0] < _FEWEST_DELTAS * ledger.delta:
        return []
    chance, shift = found[rarest]
    return [
        f"privacy.delta = {ledger.delta:g} is {ledger.delta / chance:.2g} of the chance that a "
        f"record is ever used, {chance:.3g} (devices {position_name(rarest)}): with so much of a "
        f"chance ε may fail for one that is used, behind noise of {1 / shift:.2g} times what it "
        f"moves a release by; use at most {chance / _FEWEST_DELTAS:.2g}"
    ]
