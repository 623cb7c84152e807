"""What D's algorithms have in common: a star without noise, and one aggregation a round."""

from dataclasses import replace

from m2fdp.core.algorithms.base import Given, Plan
from m2fdp.core.engine.rules import Rules
from m2fdp.core.engine.server_rules import ServerRule, TakeAggregate
from m2fdp.core.topology.builders import star
from m2fdp.core.topology.network import Network, no_noise
from m2fdp.core.topology.trust import all_untrusted


def star_in_tiers(given: Given, server: ServerRule | None = None) -> Plan:
    """The same devices below one server, which hosts what they do not train themselves.

    Args:
        server: what it makes of an aggregate; the aggregate itself, unless given.
    """
    flat = star(given.tree)
    network = Network(flat, all_untrusted(flat), no_noise(flat))
    # What a device does in its epochs is nobody's local step: models travel once a round.
    schedule = replace(given.schedule, local_steps=1, local_aggregation={})
    return Plan(network, schedule, private=False, rules=Rules(server=server or TakeAggregate()))
