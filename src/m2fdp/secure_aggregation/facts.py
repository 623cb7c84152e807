"""What goes with messages that are read in sums only."""

from collections.abc import Iterator
from dataclasses import replace

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Feature
from m2fdp.core.experiment.request import Request
from m2fdp.core.privacy.mechanisms import lock_step_of


def surprises(config: Config, plan: Plan) -> list[str]:
    """A line where noise of its own is asked of every sender."""
    if not plan.private or not config.secure_aggregation.layers or plan.network.sums.shared:
        return []
    return [
        "secure_aggregation.noise = separate: every sender's noise is enough by itself, and sums "
        "only lower epsilon; shared meets the same target with less noise"
    ]


def _has_sums(run: Request) -> bool:
    return bool(run.config.secure_aggregation.layers)


def _has_masks(run: Request) -> bool:
    return _has_sums(run) and run.config.secure_aggregation.protocol == "masks"


# fmt: off
FACTS = (
    replace(a.SINGLE_MESSAGES, key="secure_aggregation.layers", remedy="[]",
        holds=lambda run: not _has_sums(run)),
    replace(a.SUMS_OF_SERVERS, key="secure_aggregation.layers", remedy="layers of servers",
        holds=lambda run: run.network.tree.depth not in run.network.sums.layers,
        shown=lambda run: run.network.tree.depth),
    replace(a.NOBODY_SILENT, key="secure_aggregation.dropout", remedy="0",
        holds=lambda run: not _has_sums(run) or run.config.secure_aggregation.dropout == 0),
    replace(a.SUMS_IN_CLEAR, key="secure_aggregation.protocol", remedy="ideal",
        holds=lambda run: not _has_masks(run)),
)
# fmt: on


def _of_sums(run: Request) -> Iterator[InputError]:
    """Sums that the cloud alone reads leave servers below it that step something to read."""
    sums, plan = run.config.secure_aggregation, run.plan
    if not _has_sums(run) or sums.decode != "cloud" or plan.schedule.local_steps == 1:
        return
    if not plan.private or not run.mechanism.noises_every_step:
        return
    layers, _ = lock_step_of(run.mechanism, plan.network, plan.schedule.round_plans()).nodes.T
    if ((layers > 0) & (layers < max(sums.layers))).any():
        text = (
            "leaves trusted servers, which step together with the devices below them, nothing that "
            "they can read; use parent, privacy.mechanism: upload, or one local step"
        )
        yield InputError("secure_aggregation.decode", sums.decode, text)


# fmt: off
FEATURES = (
    Feature("secure_aggregation.protocol: masks, for updates of a bounded norm,", _has_masks,
        (a.PULL_TO_RECEIVED,)),
    Feature("secure_aggregation.protocol: masks", _has_masks, (a.PRIVATE, a.PLAIN_STEPS), "ideal",
        "secure_aggregation.protocol"),
    Feature("secure_aggregation", _has_sums, values=_of_sums),
)
