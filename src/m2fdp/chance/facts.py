"""What devices that join by chance need, and servers that weigh updates."""

from dataclasses import replace

from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.checks import Wrong
from m2fdp.core.experiment.facts import Feature, always
from m2fdp.core.experiment.request import Request
from m2fdp.core.topology.network import heads_of


def joining(run: Request) -> object | None:
    """The chance with which devices join a round, and by whose plan, if no key asks for it; None
    where that is not left to chance."""
    participation, asked = run.network.participation, run.training.participation
    if participation is None or (participation.rate == 1.0 and asked is None):
        return None
    return asked or f"{participation.rate:g} {run.planned}"


def weighing(run: Request) -> object | None:
    """How updates are weighed that all devices send; None where they are not, or where devices
    join by chance."""
    if run.network.participation is None or joining(run) is not None:
        return None
    asked = run.training.estimator
    return asked if asked != "mean" else run.planned


FACTS = (
    replace(
        a.NOT_BY_CHANCE,
        key="training.participation",
        remedy="null",
        holds=lambda run: joining(run) is None,
        shown=joining,
    ),
    replace(
        a.PLAIN_MEANS,
        key="training.estimator",
        remedy="mean",
        holds=lambda run: weighing(run) is None,
        shown=weighing,
    ),
)


def of_estimator(run: Request) -> Wrong:
    """`clipped` has a least weight."""
    if run.training.estimator == "clipped" and run.training.least_weight is None:
        text = (
            "and training.estimator: clipped belong together: W_min, of a zone's devices together"
        )
        yield InputError("training.least_weight", None, text)


def of_chance(run: Request) -> Wrong:
    """No local aggregation at or above a server whose devices send it un-noised updates."""
    # How far a difference spreads is known for weights that sum to one only.
    if not run.plan.private or run.mechanism.noises_every_step:
        return
    heads, depth = heads_of(run.network)[:, 0], run.network.tree.depth
    lowest = heads[heads < depth].min(initial=depth)
    chance = f"training.participation = {joining(run)}"
    if joining(run) is None:
        chance = f"training.estimator = {weighing(run)}"
    for layer in sorted(layer for layer in run.plan.schedule.layers() if layer and layer >= lowest):
        text = (
            f"is not proven together with {chance} below servers that add the noise; use null, "
            "privacy.mechanism: gradient, or untrusted servers"
        )
        yield InputError("training.local_aggregation", layer, text)


def _divides_by_weight(run: Request) -> bool:
    joins = run.network.participation
    return joins is not None and joins.least_weight is not None


def _weighed(run: Request) -> object:
    asked = run.training.estimator
    return asked if asked == "clipped" else weighing(run) or joining(run)


# fmt: off
FEATURES = (
    Feature("training.estimator", always, values=of_estimator),
    Feature("training.estimator: clipped", _divides_by_weight, (a.NOISE_AFTER_STEPS,), "fixed",
        "training.estimator", _weighed),
    Feature("a device that joins by chance, or whose update is weighed,",
        lambda run: run.network.participation is not None, (a.NOT_DRAWN,), values=of_chance),
    Feature("a device that joins by chance", lambda run: run.network.chance is not None,
        (a.SUMS_OF_SERVERS,)),
)
