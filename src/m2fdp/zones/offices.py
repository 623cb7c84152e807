"""Who holds the office of a super-node when, and which devices take part meanwhile.

Elections are drawn before training and depend on no record, so their outcome is public, and what
one device can learn of another in office is counted in the rounds that it serves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from m2fdp.zones.lots import Exposure, exposure


@dataclass(frozen=True, eq=False)
class Offices:
    """The super-nodes of a run.

    Attributes:
        zones: int64 (N_L,), each device's zone, by its lowest server.
        present: bool (T, N_L), who takes part in which round.
        leaders: int64 (T, N_{L-1}), the device that serves each zone; -1 = nobody.
        coalition: how many devices tell one another what they see when they serve.
    """

    zones: np.ndarray
    present: np.ndarray
    leaders: np.ndarray
    coalition: int = 1

    def exposure(self, rounds: tuple[int, ...]) -> Exposure:
        """Of all devices, in some of the rounds, counted from 0: int64 (N_L,) each."""
        return _exposure(self, rounds)


@lru_cache(maxsize=256)
def _exposure(offices: Offices, rounds: tuple[int, ...]) -> Exposure:
    chosen = list(rounds)
    n_devices = len(offices.zones)
    counts = np.zeros((3, n_devices), dtype=np.int64)
    for zone in range(offices.leaders.shape[1]):
        members = np.flatnonzero(offices.zones == zone)
        leaders = offices.leaders[chosen, zone]
        places = np.where(leaders < 0, -1, np.searchsorted(members, leaders))
        of_zone = exposure(offices.present[chosen][:, members], places, offices.coalition)
        counts[:, members] = of_zone.served, of_zone.under_one_other, of_zone.under_coalition
    return Exposure(*counts)
