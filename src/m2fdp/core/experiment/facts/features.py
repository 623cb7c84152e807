"""What a run can have, with what it needs: in the order of refusals."""

from __future__ import annotations

from m2fdp.core.engine.server_rules import server_rule_of
from m2fdp.core.experiment.facts import facts as a
from m2fdp.core.experiment.facts import values
from m2fdp.core.experiment.facts.facts import has_plain_steps, noised_later
from m2fdp.core.experiment.facts.rule import Feature, always
from m2fdp.core.experiment.request import Request
from m2fdp.core.rooms import brought


def _divides_by_weight(run: Request) -> bool:
    joins = run.network.participation
    return joins is not None and joins.least_weight is not None


def _weighed(run: Request) -> object:
    asked = run.training.estimator
    return asked if asked == "clipped" else run.weighing or run.joining


def _holds_out(run: Request) -> bool:
    partition = run.config.partition
    return partition.held_out_by == "devices" and partition.validation_fraction > 0


# fmt: off
FEATURES = (
    Feature("training.estimator", always, values=values.of_estimator),
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
    Feature("privacy.unit: device, where a device without data stays where it is,",
        lambda run: noised_later(run) and run.privacy.unit == "device", (a.PULL_TO_RECEIVED,)),
    Feature("algorithm: {algorithm}, whose own local rule comes before all noise,",
        lambda run: noised_later(run) and run.privacy.unit != "device" and not has_plain_steps(run),
        (a.NO_PULL,), "privacy.mechanism: gradient"),
    Feature("algorithm: {algorithm}, which has a server rule of its own,",
        lambda run: run.plan.rules.server != server_rule_of(run.training.server), (a.AVERAGE,)),
    Feature("privacy.mechanism", always, values=values.of_noise),
    Feature("threat", always, values=values.of_threat),
    Feature("partition.held_out_by: devices", _holds_out,
        (a.PRIVATE, a.WHOLE_MODELS, a.OF_RECORDS, a.KNOWN_MODEL, a.CALIBRATED, a.SINGLE_MESSAGES,
         a.FIXED_SERVERS, a.NOT_BY_CHANCE, a.PLAIN_MEANS), "cloud", "partition.held_out_by"),
)
# fmt: on


def features_of_runs() -> tuple[Feature, ...]:
    """The core's, and those that rooms bring."""
    of_rooms = (feature for features in brought("features") for feature in features)
    return (*FEATURES, *of_rooms)
