"""Amendments: a plan that continues another one after a round, with other devices.

The old plan ends at that round. The new one holds it whole, so that every node computes both anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m2fdp.core.errors import InputError, among
from m2fdp.core.files import shown
from m2fdp.core.formatting import for_json
from m2fdp.deployment.plan import PublicPlan, load_plan, make_plan, recompute
from m2fdp.given.loading import load_config
from m2fdp.given.retired import less_retired

_CHANGED = ("training.rounds", "privacy.epsilon")


def amended(
    plan: PublicPlan,
    after: int,
    added: Sequence[str],
    retired: Sequence[str],
    params: Mapping[str, Any],
) -> PublicPlan:
    """The plan that continues another one after a round. `added` are NAME:SERVER=RECORDS, `retired`
    names; `params` may change how many rounds there are, and epsilon. An `InputError` says what is
    wrong with one of them."""
    first, last = (plan.continues or (None, 1))[1], plan.content["rounds"] - 1
    if not first <= after <= last:
        raise InputError("--after", after, f"valid: a round of the plan, {first} to {last}")
    for key in (f"{block}.{key}" for block, its in params.items() for key in its):
        if key not in _CHANGED:
            raise InputError("--params", key, f"can't be amended; valid: {', '.join(_CHANGED)}")
    before = recompute(plan)
    tree, records = before.network.tree, dict(plan.facts.records)
    edges = {child: tree.names[layer][parent] for layer, parents in enumerate(tree.parents)
             for child, parent in zip(tree.names[layer + 1], parents, strict=True)}  # fmt: skip
    gone, known = dict(plan.content.get("retired", {})), {*edges, tree.names[0][0]}
    for name in retired:
        if name not in records:
            raise InputError("--retire", name, f"is no device; they are {among(name, records)}")
        device = tree.names[-1].index(name)
        gone[name] = for_json(before.epsilon(device, after))
        del edges[name], records[name]
    for text in added:
        (name, _, place), (_, _, number) = text.partition(":"), text.partition("=")
        server, servers = place.rpartition("=")[0], tree.names[-2]
        if server not in servers or not number.isdigit():
            valid = f"valid: NAME:SERVER=RECORDS, with a server of {', '.join(servers)}"
            raise InputError("--add", text, valid)
        if name in known or name in gone:
            raise InputError("--add", text, f"{name} has been a node before; name it otherwise")
        edges[name], records[name] = server, int(number)
    if childless := sorted(set(tree.names[-2]) - set(edges.values())):
        raise InputError("--retire", childless[0], "would have no devices; leave one")
    listed = {"topology.fanouts": None, "topology.edges": [[p, c] for c, p in edges.items()]}
    config = load_config(less_retired(plan.content["configuration"]), listed, params)
    continues = {"plan": plan.content, "round": after}
    facts = replace(plan.facts, records=records)
    made = make_plan(config, facts, plan.release, continues, gone)
    if not made.content["rounds"] > after:
        raise InputError("training.rounds", made.content["rounds"], f"leaves none after {after}")
    return made


def successor(plan: PublicPlan, folder: Path, authority: bytes) -> PublicPlan | None:
    """What continues a plan, if it lies in a folder; an `InputError` where two amendments do."""
    found = dict[bytes, PublicPlan]()
    for path in sorted(folder.glob("amendment*.json")):
        other = load_plan(path, authority)
        if other.continues is not None and other.continues[0].digest == plan.digest:
            found[other.digest] = other
    if len(found) > 1:
        problem = "holds two amendments of one plan; leave the one that all nodes have"
        raise InputError("plan", shown(folder), problem)
    return next(iter(found.values()), None)


def due(plan: PublicPlan, round_: int, folder: Path, authority: bytes) -> PublicPlan | None:
    """The amendment in a folder by which a plan ends before a round; an `InputError` where it is
    none, or comes too late."""
    found = successor(plan, folder, authority)
    until = None if found is None or found.continues is None else found.continues[1]
    if until is not None and until < round_ - 1:
        raise InputError("amendment", f"after round {until}", f"round {round_ - 1} is over")
    return found if until == round_ - 1 else None
