"""Networks and mechanisms as tests of the bounds want them."""

from tests.builders import premises_of

from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_untrusted, draw_trust


def network_on(tree, trust=None, participants=None):
    """Nobody is trusted unless it is said."""
    trust = trust or all_untrusted(tree)
    return Network(tree, trust, noise_plan(tree, trust), participants)


def network_of(fanouts, ratios, participants=None):
    tree = tree_from_fanouts(fanouts)
    return network_on(tree, draw_trust(tree, ratios, seed=0), participants)


def mechanism_of(network, schedule, privacy, sizes=9, rates=1.0):
    """A calibrated one, of equal devices unless arrays say otherwise."""
    plans = schedule.round_plans()
    return build_mechanism(premises_of(network, plans, privacy, sizes=sizes, rates=rates))
