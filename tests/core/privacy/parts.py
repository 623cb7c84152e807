"""Networks, plans and mechanisms that the privacy tests put together, and what one Gaussian is
worth (Balle and Wang 2018, Theorem 8), by itself."""

from math import exp, log, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm
from tests.builders import premises_of

from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import explicit_trust

# J's noise for a nominal epsilon of 1; G = 1 makes noise and shifts easy to read.
PAPER = {
    "mechanism": "upload",
    "calibration": "paper",
    "alpha": 10.0,  # moderate epsilons are quick to compute
    "epsilon": 1.0,
    "delta": 1e-5,
    "clipping_norm": 1.0,
}


def plans_of(rounds, steps, local_aggregation=None, eta=0.1) -> tuple[RoundPlan, ...]:
    """T rounds of K steps with local aggregations {layer: every}."""
    return Schedule(rounds, steps, local_aggregation or {}, eta, "constant").round_plans()


def network_of(tree, untrusted=()) -> Network:
    """A network from a tree, or fan-outs, and the names of its untrusted servers."""
    tree = tree_from_fanouts(tree) if isinstance(tree, list) else tree
    trust = explicit_trust(tree, list(untrusted))
    return Network(tree, trust, noise_plan(tree, trust))


def mechanism_of(network, plans, batch=32, size=1200, threat=None, **privacy):
    """A mechanism for shards of one size, or of the given sizes, with J's noise by default."""
    rates = np.minimum(1.0, batch / np.asarray(size))
    return build_mechanism(premises_of(network, plans, PAPER | privacy, threat, size, rates))


def delta_of(shift, epsilon):
    """Of one Gaussian moved by so many deviations."""
    a, b = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
    return norm.cdf(a) - exp(epsilon + norm.logcdf(b))


def epsilon_of(shift, delta=1e-5):
    """Of one Gaussian moved by so many deviations."""
    most = shift**2 / 2 + shift * sqrt(2 * log(1 / delta))
    if shift > 1e3:
        return most
    return brentq(lambda epsilon: delta_of(shift, epsilon) - delta, 0, most, xtol=1e-12)


def epsilon_of_releases(*releases):
    """Of (shift, deviation, count)."""
    return epsilon_of(sqrt(sum(n * (shift / deviation) ** 2 for shift, deviation, n in releases)))
