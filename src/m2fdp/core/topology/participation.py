"""Devices that join a round by chance, and what their zone makes of their updates (H Alg. 1).

A zone is a lowest server with its devices. Every device joins a round with probability q, by itself
(Poisson sampling). The zone's model moves by the weighted sum of the updates of those who do, over
a number that is public: H as printed divides by the weight of who came, which doubles what one
device moves the sum by, and shows in the noise's scale how many there were.

    fixed:   sum of w_j Delta_j / (q W_i), W_i the w_j of all devices of zone i,
    clipped: sum of w_j Delta_j / max(q W_min, sum of w_j of those who came)

(McMahan et al. 2018, "Learning differentially private recurrent language models", f_f and f_c).
With every w_j = 1 `fixed` is the mean, over the expected number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Participation:
    """Who joins by chance, and over what their updates are summed.

    Attributes:
        rate: q.
        caps: float64 (N_L,), w_j, above 0 and at most 1.
        least_weight: W_min of `clipped`; None is `fixed`.
    """

    rate: float
    caps: np.ndarray
    least_weight: float | None = None

    def of_all(self, zones: np.ndarray) -> np.ndarray:
        """float64 (N_L,): each device's part of the weight of all devices of its zone, its lowest
        server: int64 (N_L,)."""
        return self.caps / np.bincount(zones, weights=self.caps)[zones]

    def weights(self, zones: np.ndarray) -> np.ndarray:
        """float64 (N_L,): what each device's update counts with in its zone's at most; under
        `fixed` in every round that it joins."""
        if self.least_weight is None:
            return self.of_all(zones) / self.rate
        return self.caps / (self.rate * self.least_weight)

    def weights_among(self, zones: np.ndarray, present: np.ndarray) -> np.ndarray:
        """The same in a round of those present, bool (N_L,)."""
        if self.least_weight is None:
            return self.weights(zones)
        came = np.bincount(zones, weights=self.caps * present)
        return self.caps / np.maximum(self.rate * self.least_weight, came)[zones]
