"""(P) of J Sec. V-B: what energy, delay and privacy noise each K^t and participation cost.

As in J, local aggregations are at layer 1 only, and a subnet's participation depends only on
whether its ancestor at layer 1 is trusted. Three arrays hold the terms of every choice, so that
solving (P) is one weighted sum and its least entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from m2fdp.config import ControlConfig, PrivacyConfig, ResourcesConfig
from m2fdp.convergence.bound import layer_terms, noise_factor, trust_shares
from m2fdp.costs.resources import round_costs
from m2fdp.privacy.mechanisms import LockStep
from m2fdp.schedule.schedule import Schedule
from m2fdp.topology.network import Network

# Of larger subnets so many sizes are looked at, evenly spaced from one device to all.
_MOST_SIZES = 128


@dataclass(frozen=True)
class Choice:
    """One point of (P).

    Attributes:
        local_steps: K^t.
        trusted, untrusted: s^t_c, or all devices where there are fewer, below a trusted and below
            an untrusted node of layer 1; 0 where there is no such node.
    """

    local_steps: int
    trusted: int
    untrusted: int


@dataclass(frozen=True)
class Terms:
    """The terms of (P) at one choice, raw and as the alphas weight them.

    Attributes:
        energy_j, delay_s: E and Gamma, of all rounds that are left.
        gap: nu of J eq. 28.
        energy_share, delay_share, gap_share: each over its scale; see `Problem`.
        objective: the sum of the shares, weighted.
    """

    energy_j: float
    delay_s: float
    gap: float
    energy_share: float
    delay_share: float
    gap_share: float
    objective: float


@dataclass(frozen=True, eq=False)
class Problem:
    """(P) of one run, for any tau^t that is left.

    The scale of a term is its value at the first round's choice and tau^1 = tau, so that equal
    alphas weight equal relative changes from there. (Over its largest value nu would be next to
    nothing for all but the largest K, of which it is the fourth power.) Scales are constants of
    the run: (P) is J's with other units for the alphas.

    Attributes:
        local_steps: 1…K^max, int (k,).
        sizes: the values of s_T, (a,), and of s_U, (b,); a single 0 where there is no subnet.
        energy_j, delay_s: E and Gamma at tau^t = tau, (k, a, b).
        gap: nu, (k, a, b).
        alphas: alpha_1, alpha_2, alpha_3.
        total_steps: tau.
        start: the first round's choice.
    """

    local_steps: np.ndarray
    sizes: tuple[np.ndarray, np.ndarray]
    energy_j: np.ndarray
    delay_s: np.ndarray
    gap: np.ndarray
    alphas: tuple[float, float, float]
    total_steps: int
    start: Choice

    @cached_property
    def scales(self) -> tuple[float, float, float]:
        """What E, Gamma and nu are divided by."""
        at = _position(self, self.start)
        return float(self.energy_j[at]), float(self.delay_s[at]), float(self.gap[at])

    @cached_property
    def resource_cost(self) -> np.ndarray:
        """The weighted shares of E and Gamma at tau^t = tau, (k, a, b); proportional to tau^t."""
        return (
            self.alphas[0] / self.scales[0] * self.energy_j
            + self.alphas[1] / self.scales[1] * self.delay_s
        )

    @cached_property
    def noise_cost(self) -> np.ndarray:
        """The weighted share of nu, (k, a, b)."""
        return self.alphas[2] / self.scales[2] * self.gap


def solve(problem: Problem, remaining: int) -> Choice:
    """The choice of least objective with K <= min(K^max, tau^t).

    Of equal ones that with the fewest local steps, then with the fewest devices below trusted
    and then below untrusted nodes.

    Args:
        remaining: tau^t >= 1.
    """
    affordable = slice(0, min(len(problem.local_steps), remaining))
    left = remaining / problem.total_steps
    objective = left * problem.resource_cost[affordable] + problem.noise_cost[affordable]
    # In C order, the first of the least.
    k, a, b = np.unravel_index(int(objective.argmin()), objective.shape)
    return Choice(int(problem.local_steps[k]), int(problem.sizes[0][a]), int(problem.sizes[1][b]))


def terms_at(problem: Problem, choice: Choice, remaining: int) -> Terms:
    """What a choice among those of the problem costs when tau^t is left."""
    at = _position(problem, choice)
    left = remaining / problem.total_steps
    raw = (
        left * float(problem.energy_j[at]),
        left * float(problem.delay_s[at]),
        float(problem.gap[at]),
    )
    energy, delay, gap = (value / scale for value, scale in zip(raw, problem.scales, strict=True))
    shares = (energy, delay, gap)
    objective = sum(alpha * share for alpha, share in zip(problem.alphas, shares, strict=True))
    return Terms(*raw, *shares, objective)


def _position(problem: Problem, choice: Choice) -> tuple[int, int, int]:
    """Where a choice is in the arrays."""
    return (
        choice.local_steps - 1,
        int(np.searchsorted(problem.sizes[0], choice.trusted)),
        int(np.searchsorted(problem.sizes[1], choice.untrusted)),
    )


def build_problem(
    network: Network,
    lock_step: LockStep,
    schedule: Schedule,
    n_parameters: int,
    sampling_rate: float,
    resources: ResourcesConfig,
    privacy: PrivacyConfig,
    config: ControlConfig,
) -> Problem:
    """(P) of a run.

    Args:
        network: of depth L >= 2.
        schedule: tau is its T·K unless the configuration says otherwise; its local aggregations
            at layer 1 are kept.
        sampling_rate: q, the largest over devices.
    """
    total = config.tau or schedule.rounds * schedule.local_steps
    steps = np.arange(1, min(config.max_local_steps, total) + 1)
    subnets = _subnets(network)
    sizes = (_tried_sizes(subnets[0]), _tried_sizes(subnets[1]))
    every = schedule.local_aggregation.get(1)
    cost = round_costs(network, lock_step, every, n_parameters, resources, steps, sizes)
    rounds_left = total / steps[:, None, None]
    factor = noise_factor(
        network.tree.depth, n_parameters, steps, sampling_rate, privacy.epsilon, privacy.delta
    )
    # s_{L-1} of each kind, which the smallest subnet keeps small.
    smallest = (
        np.minimum(sizes[0], subnets[0].min(initial=sizes[0][-1])),
        np.minimum(sizes[1], subnets[1].min(initial=sizes[1][-1])),
    )
    return Problem(
        steps,
        sizes,
        rounds_left * cost.energy_j,
        rounds_left * cost.delay_s,
        factor[:, None, None] * _noise_terms(network, smallest, privacy.alpha),
        (config.alpha_1, config.alpha_2, config.alpha_3),
        total,
        Choice(
            int(min(config.initial_local_steps, steps[-1])),
            int(sizes[0][-1]),
            int(sizes[1][-1]),
        ),
    )


def present_devices(network: Network, choice: Choice) -> np.ndarray:
    """How many devices of each lowest server take part: int64 (N_{L-1},)."""
    wanted = np.where(_below_trusted(network), choice.trusted, choice.untrusted)
    return np.minimum(network.tree.n_children(network.tree.depth - 1), wanted)


def _below_trusted(network: Network) -> np.ndarray:
    """Is the ancestor at layer 1 of each lowest server trusted: bool (N_{L-1},)."""
    tree = network.tree
    ancestors = np.arange(tree.n_nodes(tree.depth - 1))
    for layer in range(tree.depth - 1, 1, -1):
        ancestors = tree.parents[layer - 1][ancestors]
    return network.trust[1][ancestors]


def _subnets(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """|S_c| of the lowest servers below trusted, and below untrusted nodes of layer 1."""
    children = network.tree.n_children(network.tree.depth - 1)
    trusted = _below_trusted(network)
    return children[trusted], children[~trusted]


def _tried_sizes(subnets: np.ndarray) -> np.ndarray:
    """The values of s_c that are looked at, ascending; 0 alone where there is no subnet."""
    if not subnets.size:
        return np.zeros(1, dtype=np.int64)
    largest = int(subnets.max())
    tried = np.linspace(1, largest, min(largest, _MOST_SIZES))
    return tried.round().astype(np.int64)


def _noise_terms(
    network: Network, sizes: tuple[np.ndarray, np.ndarray], alpha: float
) -> np.ndarray:
    """The sum of J eq. 28 for every s_T and s_U: (a, b).

    Eq. 28 knows one s_{L-1}, the least of all subnets; taken by the letter, no choice would ever
    let the two kinds differ, as a larger one costs and gains nothing. Each noise below a trusted
    node of layer 1 is averaged over s_T devices, though, and each other over s_U: A_1, which is
    also B_1's first summand, takes s_T, and all else s_U. Where they are equal, this is eq. 28.
    """
    tree = network.tree
    shares = trust_shares(tree, network.trust)
    alphas = [alpha] * tree.depth
    above = [tree.smallest_fanout(layer) for layer in range(1, tree.depth - 1)]
    # Where there are no such subnets their size divides a share of zero.
    s_t, s_u = np.maximum(sizes[0], 1)[:, None], np.maximum(sizes[1], 1)[None, :]
    trusted = layer_terms(shares, [*above, s_t], alphas)
    untrusted = layer_terms(shares, [*above, s_u], alphas)
    return np.asarray(untrusted.total + 2 * (trusted.a[0] - untrusted.a[0]))
