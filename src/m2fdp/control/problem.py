"""(P) of J Sec. V-B: what energy, delay and privacy noise each K^t and participation cost.

As in J, local aggregations are at layer 1 only, and a subnet's participation depends only on
whether its ancestor at layer 1 is trusted. Three arrays hold the terms of every choice, so that
solving (P) is one weighted sum and its least entry.

J's (P) is for a given tau and prices the papers' noise (`build_problem`). With the noise that the
mechanism draws, tau and the step size are chosen with K and participation, all for one epsilon
(`plan_problem`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, sqrt

import numpy as np

from m2fdp.control.config import ControlConfig
from m2fdp.control.gaps import NOTHING, Gap, History, MechanismGap, PapersGap
from m2fdp.convergence.bound import layer_terms, noise_factor, trust_shares
from m2fdp.convergence.mean_descent import Landscape, RoundSpread, StepSums
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import Trust
from m2fdp.costs.resources import Links, message_bits

# Of larger subnets so many sizes are looked at, evenly spaced from one device to all; fewer where
# tau and the step size are chosen, too.
_MOST_SIZES = 128
_MOST_SIZES_PLANNED = 24
# So many values of tau are looked at, and of gamma below the largest, down to this part of it.
_TOTALS = 48
_STEP_PARAMETERS = 48
_LEAST_STEP_PARAMETER = 1e-3


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
        energy_term_j, delay_term_s: E and Gamma, of all rounds that are left.
        gap_term: nu of J eq. 28.
        energy_share, delay_share, gap_share: each over its scale; see `Problem`.
        objective: the sum of the shares, weighted.
    """

    energy_term_j: float
    delay_term_s: float
    gap_term: float
    energy_share: float
    delay_share: float
    gap_share: float
    objective: float


@dataclass(frozen=True, eq=False)
class ChoiceGrid:
    """What (P) chooses from, and what a round of each choice costs.

    Attributes:
        local_steps: 1…K^max, int (k,).
        sizes: the values of s_T, (a,), and of s_U, (b,); a single 0 where there is no subnet.
        energy_j, delay_s: of one round, (k, a, b).
        start: K^1 of J with all devices, at which the terms have their units.
    """

    local_steps: np.ndarray
    sizes: tuple[np.ndarray, np.ndarray]
    energy_j: np.ndarray
    delay_s: np.ndarray
    start: Choice

    def place(self, choice: Choice) -> tuple[int, int, int]:
        """Where a choice is in the arrays."""
        return (
            choice.local_steps - 1,
            int(np.searchsorted(self.sizes[0], choice.trusted)),
            int(np.searchsorted(self.sizes[1], choice.untrusted)),
        )

    def at(self, place: tuple[int, int, int]) -> Choice:
        """The choice at a place of the arrays."""
        k, a, b = place
        return Choice(int(self.local_steps[k]), int(self.sizes[0][a]), int(self.sizes[1][b]))


@dataclass(frozen=True, eq=False)
class Problem:
    """(P) of one run, for any tau^t that is left.

    The unit of a term is its value where every round has K^1 local steps and all devices, so that
    equal alphas weight equal relative changes from there. Units are constants of the run: (P) is
    J's with other units for the alphas.

    Attributes:
        gap, total_steps: nu, and tau.
        units: the units of E, Gamma and nu.
        starts_there: whether the first round has the grid's `start`, as J's, or is chosen, too.
    """

    grid: ChoiceGrid
    gap: Gap
    alphas: tuple[float, float, float]
    total_steps: int
    units: tuple[float, float, float]
    starts_there: bool

    @cached_property
    def resources(self) -> tuple[np.ndarray, np.ndarray]:
        """E and Gamma at tau^t = tau, (k, a, b) each; they are proportional to tau^t."""
        rounds = np.asarray(self.total_steps / self.grid.local_steps[:, None, None])
        return rounds * self.grid.energy_j, rounds * self.grid.delay_s

    @cached_property
    def resource_cost(self) -> np.ndarray:
        """The weighted shares of E and Gamma at tau^t = tau, (k, a, b)."""
        of_energy, of_delay = (self.alphas[i] / self.units[i] * self.resources[i] for i in (0, 1))
        return of_energy + of_delay

    def objective(self, remaining: int, history: History) -> np.ndarray:
        """The weighted sum of the shares for tau^t = remaining, (k, a, b)."""
        gap = self.gap.over(history, remaining)
        in_time = np.isfinite(gap)  # where the rounds suffice, whatever the gap weighs
        noise_cost = self.alphas[2] / self.units[2] * np.where(in_time, gap, 0)
        cost = remaining / self.total_steps * self.resource_cost + noise_cost
        return np.where(in_time, cost, np.inf)


def solve(problem: Problem, remaining: int, history: History = NOTHING) -> Choice:
    """The choice of least objective with K <= min(K^max, tau^t), where tau^t >= 1 is left. Of equal
    ones it has the fewest local steps, then devices below trusted, then below untrusted nodes."""
    affordable = slice(0, min(len(problem.grid.local_steps), remaining))
    objective = problem.objective(remaining, history)[affordable]
    # In C order, the first of the least.
    k, a, b = np.unravel_index(int(objective.argmin()), objective.shape)
    return problem.grid.at((int(k), int(a), int(b)))


def terms_at(problem: Problem, choice: Choice, remaining: int, history: History = NOTHING) -> Terms:
    """What a choice costs when tau^t is left."""
    at, part = problem.grid.place(choice), remaining / problem.total_steps
    energy_j, delay_s = (part * float(of_all[at]) for of_all in problem.resources)
    raw = energy_j, delay_s, float(problem.gap.over(history, remaining)[at])
    energy, delay, gap = (value / unit for value, unit in zip(raw, problem.units, strict=True))
    shares = (energy, delay, gap)
    objective = sum(alpha * share for alpha, share in zip(problem.alphas, shares, strict=True))
    return Terms(*raw, *shares, objective)


def build_problem(
    links: Links,
    schedule: Schedule,
    sampling_rate: float,
    privacy: PrivacyConfig,
    config: ControlConfig,
) -> Problem:
    """J's (P) of a run.

    Args:
        links: those of a network of depth L >= 2.
        schedule: configured rounds: tau is their T·K unless `config` says otherwise, and their
            local aggregations at layer 1 are kept.
        sampling_rate: q, the largest over devices.
    """
    network = links.network
    total = config.tau or schedule.rounds * schedule.local_steps
    grid = choice_grid(links, schedule, config, total)
    target = privacy.epsilon, privacy.delta
    size = network.tree.depth, links.n_parameters
    factor = noise_factor(*size, grid.local_steps, sampling_rate, *target)
    # s_{L-1} of each kind, which the smallest subnet keeps small.
    subnets, sizes = _subnets(network), grid.sizes
    smallest = [
        np.minimum(tried, kind.min(initial=tried[-1]))
        for tried, kind in zip(sizes, subnets, strict=True)
    ]
    gap = factor[:, None, None] * _noise_terms(network, smallest, privacy.alpha)
    at, rounds = grid.place(grid.start), total / grid.start.local_steps
    units = rounds * float(grid.energy_j[at]), rounds * float(grid.delay_s[at]), float(gap[at])
    return Problem(grid, PapersGap(gap), _alphas(config), total, units, starts_there=True)


def choice_grid(links: Links, schedule: Schedule, config: ControlConfig, total: int) -> ChoiceGrid:
    """What (P) chooses from, for a network of depth L >= 2 and tau at most `total`."""
    steps = np.arange(1, min(config.max_local_steps, total) + 1)
    count = _MOST_SIZES if config.gap == "papers" else _MOST_SIZES_PLANNED
    below_trusted, below_untrusted = _subnets(links.network)
    sizes = _tried_sizes(below_trusted, count), _tried_sizes(below_untrusted, count)
    costs = cost_grid(links, schedule.local_aggregation.get(1), steps, sizes)
    start = Choice(
        int(min(config.initial_local_steps, steps[-1])), int(sizes[0][-1]), int(sizes[1][-1])
    )
    return ChoiceGrid(steps, sizes, *costs, start)


def cost_grid(
    links: Links,
    aggregate_every: int | None,
    local_steps: np.ndarray,
    sizes: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Joules and seconds of a round for every K, s_T and s_U: float64 (k, a, b) each.

    These are E and Gamma of J Sec. V-B. J sums the delays of the local aggregations of all servers;
    here different servers receive side by side.

    Args:
        links: those of a network of depth L >= 2, whose own participation plays no part.
        aggregate_every: local steps between aggregations at layer 1; None = there are none.
        local_steps: int (k,), the values of K.
        sizes: int (a,) and (b,), the values of s_T and s_U: the most devices that take part below
            a lowest server with a trusted, and with an untrusted ancestor at layer 1.
    """
    network, config = links.network, links.config
    # A step by itself, a step that ends at layer 1, and the last one.
    journeys = [links.senders(top) for top in (None, 1, 0)]
    trusted = trusted_branch(network.tree, network.trust)[1:]
    untrusted = [~mask for mask in trusted]
    (below_trusted, n_trusted), (below_untrusted, n_untrusted) = (
        _branch(links, branch, values, journeys)
        for branch, values in zip((trusted, untrusted), sizes, strict=True)
    )
    # Axes: journey, K, s_T, s_U.
    a, b = below_trusted[:, :, None, :, None], below_untrusted[:, :, None, None, :]
    energy, delay = a[0] + b[0], np.maximum(a[1], b[1])
    delay = delay + (a[2] + b[2] if config.uplinks == "sequential" else np.maximum(a[2], b[2]))

    steps = np.asarray(local_steps)[:, None, None]
    locally = np.zeros_like(steps)
    if aggregate_every is not None:
        locally = (steps - 1) // aggregate_every
    times = np.stack([steps - 1 - locally, locally, np.ones_like(steps)])
    present = n_trusted[:, None] + n_untrusted[None, :]
    return (
        (times * energy).sum(axis=0) + steps * present * config.step_energy_j,
        (times * delay).sum(axis=0) + steps * config.step_delay_s,
    )


def _branch(
    links: Links,
    branch: Sequence[np.ndarray],
    sizes: np.ndarray,
    journeys: Sequence[Sequence[np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Costs if only `branch` sends, bool (N_l,) for layer l = 1…L: joules, seconds up to layer 1
    and seconds into the cloud, (3, journeys, sizes). Second: numbers of devices, int64 (sizes,)."""
    tree = links.network.tree
    rank = tree.sibling_rank()
    costs = np.zeros((3, len(journeys), len(sizes)))
    present = np.zeros(len(sizes), dtype=np.int64)
    for i, size in enumerate(sizes):
        taking_part = (*branch[:-1], branch[-1] & (rank < size))
        present[i] = taking_part[-1].sum()
        network = replace(links.network, participants=max(int(size), 1))
        bits = message_bits(network, links.n_parameters, links.config)
        for journey, masks in enumerate(journeys):
            first, *others = (mask & part for mask, part in zip(masks, taking_part, strict=True))
            energy, delays = links.hop(1, first, bits[0])
            cost = links.journey((np.zeros_like(first), *others), bits)
            costs[:, journey, i] = cost.energy_j + energy, cost.delay_s, delays[0]
    return costs, present


def plan_problem(
    grid: ChoiceGrid,
    landscape: Landscape,
    spread: Callable[[int], RoundSpread],
    schedule: Schedule,
    config: ControlConfig,
) -> tuple[Problem, float]:
    """(P) with the noise that the mechanism draws, at the tau and gamma with the best choice, and
    that gamma.

    The values of tau are evenly spaced by their logarithm up to T·K of the schedule, or the
    configured one; no choice needs more rounds than T.

    Args:
        spread: what a round of each choice brings, (k, a, b), where noise is for tau local steps.
    """
    sums, alphas, room = StepSums(schedule.rounds), _alphas(config), longest(schedule, config)
    # eta^1 = gamma / sqrt(2) is the largest step, at most 1/beta.
    gammas = np.geomspace(_LEAST_STEP_PARAMETER, 1, _STEP_PARAMETERS)
    tried = sqrt(2) * (1 / landscape.smoothness) * gammas
    steps, place = grid.local_steps, grid.place(grid.start)

    def gaps(total: int) -> list[MechanismGap]:
        of_total = spread(total)
        return [MechanismGap(landscape, of_total, steps, gamma, sums) for gamma in tried.tolist()]

    # Where every round is J's first one.
    rounds = max(1, min(schedule.rounds, room // grid.start.local_steps))
    total = rounds * grid.start.local_steps
    gap = min(float(gap.over(NOTHING, total)[place]) for gap in gaps(total))
    units = rounds * float(grid.energy_j[place]), rounds * float(grid.delay_s[place]), gap
    lowest, best = inf, None
    totals = [config.tau] if config.tau else np.geomspace(1, room, _TOTALS).round()
    for total in np.unique(totals).astype(int).tolist():
        for gap_at in gaps(total):
            problem = Problem(grid, gap_at, alphas, total, units, starts_there=False)
            objective = float(problem.objective(total, NOTHING)[:total].min())
            if objective < lowest:
                lowest, best = objective, (problem, gap_at.step_parameter)
    assert best is not None  # K^max in every round has room for any of them
    return best


def longest(schedule: Schedule, config: ControlConfig) -> int:
    """The largest tau that T rounds have room for: of T·K steps where it is to be chosen."""
    room = schedule.rounds * config.max_local_steps
    return min(config.tau or schedule.rounds * schedule.local_steps, room)


def present_devices(network: Network, choice: Choice) -> np.ndarray:
    """How many devices of each lowest server take part: int64 (N_{L-1},)."""
    children, trusted = lowest(network)
    return np.minimum(children, np.where(trusted, choice.trusted, choice.untrusted))


def lowest(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """|S_c| of the lowest servers, int64, and which are below a trusted node of layer 1, bool."""
    tree = network.tree
    return tree.n_children(tree.depth - 1), trusted_branch(tree, network.trust)[-2]


def with_present(network: Network, present: np.ndarray) -> Network:
    """The network in which so many devices of each lowest server take part, int64 (N_{L-1},)."""
    everybody = (present == network.tree.n_children(network.tree.depth - 1)).all()
    return network if everybody else replace(network, participants=present)


def trusted_branch(tree: Tree, trust: Trust) -> list[np.ndarray]:
    """For layer l = 0…L >= 2, bool (N_l,): is a node's ancestor at layer 1, or itself there,
    trusted; the cloud counts with them."""
    below = (trust[1][tree.ancestors_of(layer, 1)] for layer in range(1, tree.depth + 1))
    return [np.ones(1, dtype=bool), *below]


def _alphas(config: ControlConfig) -> tuple[float, float, float]:
    return config.alpha_1, config.alpha_2, config.alpha_3


def _subnets(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """|S_c| of the lowest servers below trusted, and below untrusted nodes of layer 1."""
    children, trusted = lowest(network)
    return children[trusted], children[~trusted]


def _tried_sizes(subnets: np.ndarray, count: int) -> np.ndarray:
    """The values of s_c that are looked at, ascending; 0 alone where there is no subnet."""
    if not subnets.size:
        return np.zeros(1, dtype=np.int64)
    largest = int(subnets.max())
    tried = np.linspace(1, largest, min(largest, count))
    return tried.round().astype(np.int64)


def _noise_terms(network: Network, sizes: Sequence[np.ndarray], alpha: float) -> np.ndarray:
    """The sum of J eq. 28 for every s_T and s_U: (a, b).

    Eq. 28 knows one s_{L-1}, the least of all subnets; taken by the letter, no choice would ever
    let the two kinds differ, as a larger one costs and gains nothing. Each noise below a trusted
    node of layer 1 is averaged over s_T devices, though, and each other over s_U: A_1, which is
    also B_1's first summand, takes s_T, and all else s_U. Where they are equal, this is eq. 28.
    """
    tree = network.tree
    shares = trust_shares(tree, network.trust)
    alphas = [alpha] * tree.depth
    fanouts = [tree.smallest_fanout(layer) for layer in range(1, tree.depth - 1)]
    # Where there are no such subnets their size divides a share of zero.
    s_t, s_u = np.maximum(sizes[0], 1)[:, None], np.maximum(sizes[1], 1)[None, :]
    trusted = layer_terms(shares, [*fanouts, s_t], alphas)
    untrusted = layer_terms(shares, [*fanouts, s_u], alphas)
    return np.asarray(untrusted.total + 2 * (trusted.a[0] - untrusted.a[0]))
