"""A node whose plan holds by all that it can know, and what its plan is continued by."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.errors import InputError
from m2fdp.deployment.amendments import successor
from m2fdp.deployment.grpc_links import OtherPlanError
from m2fdp.deployment.keys import AUTHORITY, REVOKED, Identity, read_identity
from m2fdp.deployment.links import Tell
from m2fdp.deployment.node_plan import NodePlan, node_plan
from m2fdp.deployment.plan import Records, load_plan, read_own, recompute
from m2fdp.deployment.state import State
from m2fdp.deployment.status import Line, Status

T = TypeVar("T")
REHEARSAL = "REHEARSAL: noise is drawn from the seed; whoever knows the plan can subtract it"
# How an end begins that is a round's, from which another plan goes on.
AMENDED = "the run is over: amended after round "


class AmendedError(Exception):
    """Rounds go on under another plan; the text says which."""


@dataclass(frozen=True, eq=False)
class Opened:
    """A node that may take part, and what is known of it, which is called with every line; the
    folder that its plan lies in, and the cloud's records."""

    node: NodePlan
    identity: Identity
    state: State
    status: Status
    beside: Path
    held_out: Records | None = None

    @property
    def tell(self) -> Tell:
        return self.status.tell

    @property
    def ended(self) -> str | None:
        """How the run is over, once it is."""
        kept = self.state.ended(self.node.plan.digest.hex())
        return None if kept is None else kept[0]

    def following(self, named: bool = True) -> "Opened | None":
        """The node under the amendment beside its plan, which the end has named; None = there is no
        such one, or the node has left."""
        if named and not (self.ended or "").startswith(AMENDED):
            return None
        plan = successor(self.node.plan, self.beside, self.identity.authority)
        if plan is None or (named and plan.digest.hex()[:16] not in str(self.ended)):
            return None
        recomputed = recompute(plan, self.held_out)
        if not any(self.node.name in names for names in recomputed.network.tree.names):
            return None
        node = node_plan(plan, recomputed, self.node.name)
        run, rounds = plan.digest.hex()[:16], len(node.rounds)
        line = f"{node.name}: plan {run} from round {node.begins} on, {rounds} rounds in all"
        self.tell(Line(line, "plan", plan=run, rounds=rounds, children=node.children))
        return replace(self, node=node)


def followed(opened: Opened, run: Callable[[Opened], T]) -> T:
    """Run a node's plan, and what continues it; what the last one ends in."""
    while True:
        try:
            ended = run(opened)
            following = opened.following()
        except OtherPlanError:  # of a parent that went on while this node was not there
            if (following := opened.following(named=False)) is None:
                raise
        if following is None:
            return ended
        opened = following


def open_node(
    device: bool,
    tell: Tell,
    data: str | None = None,
    *,
    plan: Path,
    name: str,
    keys: Path,
    state: Path | None = None,
    rehearsal: bool = False,
) -> Opened:
    """A node of a plan, once all that it can know of the plan holds; an `InputError` otherwise.
    `data` are the cloud's held-out records; its state is in `state/NAME` beside the plan, or in
    another folder; `rehearsal` says that its operator takes part in one."""
    set_exact_arithmetic()
    identity = read_identity(name, keys)
    signed = load_plan(plan, identity.authority)
    held_out = None if data is None else read_own(data, signed.facts, tell, test=True)
    recomputed = recompute(signed, held_out)
    node = node_plan(signed, recomputed, name)
    if (node.layer == node.depth) is not device:
        use = "is a server; use m2fdp serve" if device else "is a device; use m2fdp join"
        raise InputError("--as", name, use)
    if node.layer > 0 and data is not None:
        raise InputError("--data", data, f"is the cloud's, and {name} holds no records")
    if node.layer == 0 and data is None:
        raise InputError("--data", None, "the cloud needs records to evaluate on")
    if signed.release is not None and not rehearsal:
        problem = "is a rehearsal's, whose noise protects nobody; --rehearsal takes part in it"
        raise InputError("plan: configuration.deployment.rehearsal", True, problem)
    tell(f"{name}: plan {signed.digest.hex()[:16]}, {len(node.rounds)} rounds")
    if signed.release is not None:
        tell(REHEARSAL)
    memory = State(state or plan.parent / "state" / name, name)
    identity.kept = memory.folder / REVOKED
    identity.heed(tell)
    if (wrong := identity.fault(identity.certificate, name)) is not None:
        raise InputError("keys", f"{name}.pem", f"{wrong}; have a request signed anew")
    certificates = [keys / f"{each}.pem" for each in (name, AUTHORITY)]
    # A server waits for its children as long as they may take, and then for itself.
    deadline = recomputed.settings.patience_s * (node.depth - node.layer + 1)
    status = Status(memory.folder, node, certificates, deadline, tell)
    opened = Opened(node, identity, memory, status, plan.parent, held_out)
    while (following := opened.following()) is not None:
        opened = following
    return opened
