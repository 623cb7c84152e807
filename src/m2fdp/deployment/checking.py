"""What a node would do under a plan, in words, for its operator."""

from __future__ import annotations

from collections.abc import Iterator

from m2fdp.deployment.masked import sum_terms, survivors_counted_on
from m2fdp.deployment.node_plan import NodePlan


def told_of(node: NodePlan) -> Iterator[str]:
    """A line a thing: who asks, how often, behind how much noise, who else reads it, epsilon."""
    recomputed, plan = node.recomputed, node.plan
    yield f"{node.name}: plan {plan.digest.hex()[:16]}, {len(node.rounds)} rounds"
    if plan.release is not None:
        yield "a rehearsal: noise is drawn from the seed and protects nobody"
    if node.parent is not None:
        places = [place for place in node.places(1) if place.gives]
        what = "weighed gradients" if node.gives == "gradient" else "models"
        how = ", as masked words" if node.masked else ""
        yield f"sends {what} to {node.parent}{how}, {len(places)} in the first round"
        if node.masked:
            group = sum_terms(node, node.layer, node.siblings, places[0]).group
            least = survivors_counted_on(node, group)
            yield f"{node.parent} reads their sum, of at least {least} of {group.n_members} senders"
    if node.children:
        yield f"asks {', '.join(node.children)}; missing ones: {recomputed.settings.on_missing}"
    noise = node.deviations
    for when, deviation in (
        ("at every local step", noise.step),
        ("to what it sends for a global aggregation", noise.message),
        ("to what it sends for a local aggregation", noise.local_message),
        ("to what it hands down", noise.broadcast),
    ):
        if deviation:
            unit = node.mechanism.noise.unit
            in_words = "step sizes" if unit == "step" else "the model's unit"
            yield f"adds noise of deviation {deviation:.6g} {when}, in {in_words}"
    if node.layer < node.depth:
        return
    readers = recomputed.readers_in_clear(node.index)
    yield f"un-noised vectors reach: {', '.join(readers) or 'nobody'} (--trusts)"
    ledger, rounds = recomputed.ledger, len(node.rounds)
    for line in ledger.lines:
        if node.index in line.position.members:
            counted = "counts" if line.kind in recomputed.counted else "does not count"
            spent = ledger.epsilon(line, rounds)
            yield f"  {line.observer}: {line.sees}, epsilon {spent:.4g}; {counted}"
    yield f"epsilon {recomputed.epsilon(node.index, rounds):.4g} in all, delta {ledger.delta:g}"
