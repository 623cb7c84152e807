"""What a run can have, or can be asked for, with what it needs: in the order of refusals."""

from __future__ import annotations

from m2fdp.core.engine.server_rules import server_rule_of
from m2fdp.core.experiment.facts import facts as a
from m2fdp.core.experiment.facts import values
from m2fdp.core.experiment.facts.facts import has_masks, has_plain_steps, has_sums, noised_later
from m2fdp.core.experiment.facts.rule import Feature
from m2fdp.core.experiment.request import Request
from m2fdp.tiers.split_noise import exposed_splits


def _always(run: Request) -> bool:
    return True


def _shortens(run: Request) -> bool:
    return run.plan.private and run.training.accumulated_noise is not None


def _divides_by_weight(run: Request) -> bool:
    joins = run.network.participation
    return joins is not None and joins.least_weight is not None


def _weighed(run: Request) -> object:
    asked = run.training.estimator
    return asked if asked == "clipped" else run.weighing or run.joining


def _splits(run: Request) -> bool:
    return run.network.splits is not None


def _is_exposed(run: Request) -> bool:
    return bool(exposed_splits(run.network).any())


def _in_tiers(run: Request) -> bool:
    return run.way is not None


def _averages_nothing(run: Request) -> bool:
    return run.way is not None and not run.way.averaged


def _is_controlled(run: Request) -> bool:
    return run.config.control.enabled


def _holds_out(run: Request) -> bool:
    partition = run.config.partition
    return partition.held_out_by == "devices" and partition.validation_fraction > 0


# fmt: off
# Of every run.
FEATURES = (
    Feature("training.estimator", _always, values=values.of_estimator),
    Feature("training.estimator: clipped", _divides_by_weight, (a.NOISE_AFTER_STEPS,), "fixed",
        "training.estimator", _weighed),
    Feature("a device that joins by chance, or whose update is weighed,",
        lambda run: run.network.participation is not None, (a.NOT_DRAWN,), values=values.of_chance),
    Feature("a device that joins by chance", lambda run: run.network.chance is not None,
        (a.SUMS_OF_SERVERS,)),
    Feature("privacy.calibration: paper (Prop. 1)",
        lambda run: run.plan.private and run.privacy.calibration == "paper",
        (a.NOT_BY_CHANCE, a.PLAIN_MEANS), "calibration: accountant"),
    Feature("algorithm: {algorithm}, whose local rule is anchored at the model received,",
        lambda run: run.plan.rules.local.anchored, (a.PULL_TO_RECEIVED,)),
    Feature("secure_aggregation.protocol: masks, for updates of a bounded norm,", has_masks,
        (a.PULL_TO_RECEIVED,)),
    Feature("privacy.unit: device, where a device without data stays where it is,",
        lambda run: noised_later(run) and run.privacy.unit == "device", (a.PULL_TO_RECEIVED,)),
    Feature("algorithm: {algorithm}, whose own local rule comes before all noise,",
        lambda run: noised_later(run) and run.privacy.unit != "device" and not has_plain_steps(run),
        (a.NO_PULL,), "privacy.mechanism: gradient"),
    Feature("training.accumulated_noise", _shortens,
        (a.KNOWN_ROUNDS, a.WHOLE_MODELS, a.NOISE_ADDS_UP, a.PLAIN_STEPS, a.CLIPPED_STEPS,
         a.KNOWN_MECHANISM), "null", "training.accumulated_noise"),
    Feature("training.accumulated_noise without noise at every step",
        lambda run: _shortens(run) and noised_later(run), (a.NO_PULL,), "null",
        "training.accumulated_noise"),
    Feature("algorithm: {algorithm}, whose local rule keeps something of devices,",
        lambda run: run.keeping is not None,
        (a.NOISE_AT_EVERY_STEP, a.NOT_BY_CHANCE, a.PLAIN_MEANS, a.NOBODY_SILENT, a.KNOWN_ROUNDS,
         a.WHOLE_MODELS), values=values.of_slots),
    Feature("an activation that goes to a server that nobody trusts", _is_exposed,
        (a.GRADIENT, a.EQUAL_COUNTS, a.OF_RECORDS, a.NOT_BY_CHANCE, a.PLAIN_MEANS),
        values=values.of_labels),
    Feature("algorithm: {algorithm}, which splits models,", _splits,
        (a.NOISE_AT_EVERY_STEP, a.OF_RECORDS, a.MODEL_IN_PARTS, a.RECORDS_APART,
         a.SINGLE_MESSAGES, a.NOT_DRAWN, a.NOT_BY_CHANCE, a.FIXED_SERVERS, a.STEPS_APART)),
    Feature("algorithm: {algorithm}, which splits models in single steps,",
        lambda run: _splits(run) and run.way is None, (a.CLOCK_OF_STEPS,)),
    Feature("algorithm: {algorithm}", _averages_nothing, (a.ONE_BACKEND, a.AVERAGE)),
    Feature("algorithm: {algorithm}, which trains in tiers,", _in_tiers,
        (a.MODEL_IN_PARTS, a.STEPS_OF_TIERS, a.CONSTANT_STEPS, a.NOT_BY_CHANCE, a.NO_PULL,
         a.EQUAL_WEIGHTS, a.SINGLE_MESSAGES), values=values.of_tiers),
    Feature("algorithm: {algorithm}, which has a server rule of its own,",
        lambda run: run.plan.rules.server != server_rule_of(run.training.server), (a.AVERAGE,)),
    Feature("privacy.mechanism", _always, values=values.of_noise),
    Feature("threat", _always, values=values.of_threat),
    Feature("secure_aggregation.protocol: masks", has_masks, (a.PRIVATE, a.PLAIN_STEPS), "ideal",
        "secure_aggregation.protocol"),
    Feature("secure_aggregation", has_sums, values=values.of_sums),
    Feature("partition.held_out_by: devices", _holds_out,
        (a.PRIVATE, a.WHOLE_MODELS, a.OF_RECORDS, a.KNOWN_MODEL, a.CALIBRATED, a.SINGLE_MESSAGES,
         a.FIXED_SERVERS, a.NOT_BY_CHANCE, a.PLAIN_MEANS), "cloud", "partition.held_out_by"),
    Feature("control.enabled", _is_controlled, (a.CONTROLLABLE, a.TWO_TIERS), "false",
        "control.enabled"),
    Feature("the controller (control.enabled)", _is_controlled,
        (a.NOT_DRAWN, a.AVERAGE, a.CLIPPED_STEPS, a.FIXED_SERVERS, a.NO_MULTIPLIER, a.EQUAL_WEIGHTS,
         a.NOT_BY_CHANCE, a.PLAIN_MEANS), values=values.of_control),
    Feature("control.gap: papers",
        lambda run: _is_controlled(run) and run.config.control.gap == "papers",
        (a.SINGLE_MESSAGES,), "gap: mechanism"),
    Feature("execution.engine: ray", lambda run: run.config.execution.engine == "ray",
        (a.WHOLE_MODELS, a.SUMS_IN_CLEAR, a.STEPS_APART, a.ON_PROCESSORS),
        "execution.engine: local"),
)

# Of runs that are audited by neighbours.
PLANNED_ROUNDS = (Feature("an audit by neighbours", _always, (a.KNOWN_ROUNDS,)),)
# Of runs that are audited by canaries, bounded or attacked.
EQUAL_ROUNDS = (
    Feature("a pipeline of equal rounds (audit by canaries, bound, attack)", _always,
        (a.WHOLE_MODELS, a.KNOWN_ROUNDS, a.HELD_BY_CLOUD, a.NOT_BY_CHANCE, a.PLAIN_MEANS)),
)
BOUND = (
    *EQUAL_ROUNDS,
    Feature("a bound on convergence", _always,
        (a.NOTHING_KEPT, a.AVERAGE, a.NO_PULL, a.CLIPPED_STEPS)),
)
ATTACK = (
    *EQUAL_ROUNDS,
    Feature("attack.method: lira", lambda run: run.config.attack.method == "lira",
        values=values.of_membership),
    Feature("a reconstruction (attack.method)", lambda run: run.config.attack.method != "lira",
        (a.NOTHING_KEPT, a.NOT_DRAWN, a.SUMS_IN_CLEAR, a.NOBODY_SILENT, a.FIXED_SERVERS,
         a.OF_PIXELS), "attack.method: lira", values=values.of_reconstruction),
)
# Of trees of real processes (`m2fdp plan`).
DEPLOYED = (
    Feature("a tree of nodes (m2fdp plan)", _always,
        (a.WHOLE_MODELS, a.ADDED_STEPS, a.NOT_BY_CHANCE, a.NOT_DRAWN, a.PLAIN_MEANS, a.STEPS_APART,
         a.FIXED_SERVERS, a.KNOWN_ROUNDS, a.HELD_BY_CLOUD, a.ON_PROCESSORS)),
    Feature("a local aggregation of nodes, which keep one model,",
        lambda run: bool(run.plan.schedule.local_aggregation), (a.PULL_TO_RECEIVED,)),
    Feature("a sum of nodes", lambda run: bool(run.network.sums.layers),
        (a.MASKED_SUMS, a.READ_BY_PARENTS, a.NOBODY_SILENT)),
    Feature("a sum of nodes, which mask models,", lambda run: bool(run.network.sums.layers),
        (a.NOISE_AFTER_STEPS,), "[]", "secure_aggregation.layers"),
)
