"""D's tier scheduler (D Algorithm 1, lines 21 to 34): observed times become tiers.

D leaves open how the mean over observations is weighted, where clients start and what breaks
ties: here the newest counts by `ema`, they start in `initial_tier`, and among tiers that are no
slower than the straggler's best, up to rounding, the highest wins.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from m2fdp.tiers.clock import GIGA, Clients, RoundTimes, TierCosts
from m2fdp.tiers.config import ClockConfig, TieringConfig

ABSENT = -1
# A round: costs of the tiers, all clients, their times, and who takes part, bool (K,).
Scheduled: TypeAlias = tuple[TierCosts, Clients, RoundTimes, np.ndarray]
# D's Table 2, which `tiering.profile: paper` believes: ResNet-56, times by tier over tier 1's.
TABLE_TIERS = 6
TABLE_2_CLIENT = (1.00, 1.63, 2.16, 2.68, 3.30, 3.81)
TABLE_2_SERVER = (1.00, 0.82, 0.65, 0.51, 0.33, 0.20)
# D Table 2 has six tiers. The seventh, below them, is our guess: D's steps are equal, so it has the
# constant of the clients' times, and one more step of the server's. By FLOPs it has 0.02, not 0.44,
# and whatever a scheduler loses by that is not D's.
_PAPER_CLIENT = (0.44, *TABLE_2_CLIENT)
_PAPER_SERVER = (1.16, *TABLE_2_SERVER)
# Two ways to compute one time differ by rounding.
_SLACK = 1e-12


@dataclass(frozen=True)
class SchedulerState:
    """What has been observed of the clients."""

    means: np.ndarray  # (K, M), seconds of own computing a round by tier; NaN = never in it
    rates: np.ndarray  # (K,), bytes a second when last seen
    tiers: np.ndarray  # (K,), when last seen; 0 = never


def schedule(
    tiering: TieringConfig,
    clock: ClockConfig,
    start: np.ndarray,
    allowed: np.ndarray,
    rounds: Iterable[Scheduled],
) -> Iterator[tuple[np.ndarray, RoundTimes]]:
    """The clients' tiers (K,) round by round, -1 = absent, and all times of the round. A scheduler
    sees what a server would: times and rates of rounds that are over.

    Args:
        start: int64 (K,), the tiers of clients of whom nothing is known.
        allowed: bool (K, M), the tiers that each may be in.
    """
    state = no_observations(*allowed.shape)
    for costs, clients, times, present in rounds:
        seconds = np.full(allowed.shape, np.nan)
        if tiering.schedule == "oracle":
            seconds[present] = times.parallel()[present]
        elif tiering.schedule == "dynamic":
            profile = tier_profile(tiering, costs, clock.server_gflops * GIGA)
            seconds = estimate(state, profile, costs, clients.records)
        tiers = assign(np.where(allowed, seconds, np.inf), start)
        tiers[~present] = ABSENT
        yield tiers, times
        state = observe(state, tiers, times.at(tiers).client, clients.rates)


def tier_profile(
    config: TieringConfig, costs: TierCosts, server_flops: float
) -> tuple[np.ndarray, np.ndarray]:
    """What the scheduler believes before it has seen any client: (M,) T^cp, relative to each other,
    and (M,) T^sp, seconds of a record. By the clock's FLOPs, or by D's Table 2 scaled to the
    server's time with md1 and md2 away; `server_flops` are those a second."""
    server = costs.server_flops / server_flops
    if config.profile == "clock":
        return costs.client_flops, server
    client = np.array(_PAPER_CLIENT[-config.tiers :])
    return client, np.array(_PAPER_SERVER[-config.tiers :]) * server[-TABLE_TIERS]


def no_observations(n_clients: int, n_tiers: int) -> SchedulerState:
    """What the scheduler knows before the first round: nothing."""
    means = np.full((n_clients, n_tiers), np.nan)
    return SchedulerState(means, means[:, 0].copy(), np.zeros(n_clients, dtype=np.int64))


def observe(
    state: SchedulerState, tiers: np.ndarray, seconds: np.ndarray, rates: np.ndarray
) -> SchedulerState:
    """After a round (lines 5 and 21 to 23).

    Args:
        tiers: (K,) 1 … M; -1 = the client was absent, and nothing is learnt of it.
        seconds: (n,) of the computing of those present: what they took less what they sent.
        rates: (K,) bytes a second.
    """
    present, ema = tiers > 0, TieringConfig.ema
    place = np.flatnonzero(present), tiers[present] - 1
    means, before = state.means.copy(), state.means[place]
    means[place] = np.where(np.isnan(before), seconds, ema * seconds + (1 - ema) * before)
    return SchedulerState(
        means, np.where(present, rates, state.rates), np.where(present, tiers, state.tiers)
    )


def estimate(
    state: SchedulerState,
    profile: tuple[np.ndarray, np.ndarray],
    costs: TierCosts,
    records: np.ndarray,
) -> np.ndarray:
    """T-hat of every client in every tier (lines 24 to 29), (K, M); NaN for clients never seen. In
    line 25 the size of the tier that the client was in is printed, and the data that it would send
    are meant."""
    rows = np.flatnonzero(state.tiers > 0)
    last = state.tiers[rows] - 1
    (of_client, of_server), client = profile, np.full_like(state.means, np.nan)
    client[rows] = of_client / of_client[last, None] * state.means[rows, last, None]
    server = records[:, None] * of_server
    sent = records[:, None] * costs.record_bytes + 2 * costs.model_bytes
    return np.maximum(client, server) + sent / state.rates[:, None]


def assign(estimates: np.ndarray, initial_tier: int | np.ndarray) -> np.ndarray:
    """Tiers (K,) that make the slowest client as fast as can be (lines 31 to 34, D eq. 6), by
    estimates (K, M). Clients of NaN start in the initial tier, one for all or (K,); none may be in
    a tier of infinity.

    With exact estimates no other tiers are faster: the slowest client's best time bounds all, and
    is attained. Who has time left keeps as much of the model as it can.
    """
    tiers = np.full(len(estimates), initial_tier, dtype=np.int64)
    observed = ~np.isnan(estimates).any(axis=1)
    if observed.any():
        seconds = estimates[observed]
        in_time = seconds <= straggler_seconds(seconds) * (1 + _SLACK)
        tiers[observed] = in_time.shape[1] - in_time[:, ::-1].argmax(axis=1)
    return tiers


def straggler_seconds(estimates: np.ndarray) -> float:
    """T_max (line 31): of the client whose best tier takes longest; (K, M) without NaN."""
    return float(estimates.min(axis=1).max())
