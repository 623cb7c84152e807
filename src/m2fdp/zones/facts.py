"""What goes with H's zones, and what elected super-nodes need."""

from collections.abc import Iterator
from dataclasses import replace

from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Feature, always
from m2fdp.core.experiment.request import Request
from m2fdp.core.privacy.sight import SIBLINGS
from m2fdp.zones.room import SUPER_NODES
from m2fdp.zones.super_nodes import zone_read_in_clear

FACTS = (
    replace(
        a.FIXED_SERVERS,
        key="topology.super_nodes.kind",
        remedy="fixed",
        holds=lambda run: not run.network.members_serve,
    ),
)


def _of_threat(run: Request) -> Iterator[InputError]:
    """Who serves by turns reads in clear, and is not distrusted where nobody is elected."""
    named = set(run.config.threat.distrusted)
    zone = zone_read_in_clear(run.network) if run.plan.private else None
    bound = {SIBLINGS, SUPER_NODES} & (run.plan.distrusts | named)
    for kind in sorted(bound, key=lambda kind: (kind not in named, kind)):
        if zone is not None:
            text = (
                f"can't be protected from ({kind}) in zone {zone}, whose devices are its "
                "super-nodes by turns (topology.super_nodes.kind: elected) and read its messages "
                "un-noised; let devices add the noise, or use fixed"
            )
            by_algorithm = "algorithm", run.config.algorithm
            yield InputError(
                *(("threat.distrusted", kind) if kind in named else by_algorithm), text
            )
    if SUPER_NODES in named and not run.network.members_serve:
        text = "are elected ones (topology.super_nodes.kind: elected); fixed ones are servers"
        yield InputError("threat.distrusted", SUPER_NODES, text)


FEATURES = (Feature("threat, in zones", always, values=_of_threat),)
