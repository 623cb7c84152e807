"""Cores of a cluster that are taken together or not at all, so that runs never wait for each other
with a part of what they need."""

from __future__ import annotations

import logging
import time
from typing import Any

from m2fdp.core.interruption import deferred
from m2fdp.processes.connection import SIGNALS_WAIT_S, cores_of_cluster

# Who waits no longer for others' cores is not told that it waits.
_SAID_AFTER_S = 3.0

logger = logging.getLogger(__name__)


class Reservation:
    """Cores of the connected cluster, one a place.

    Args:
        cores: how many; no more than the cluster has.
    """

    def __init__(self, cores: int) -> None:
        from ray.util import placement_group

        self.cores = cores
        self._group = placement_group([{"CPU": 1}] * cores, strategy="SPREAD")

    def wait(self) -> None:
        """Wait until nobody else has them."""
        began, said = time.monotonic(), False
        while True:
            with deferred():
                there = self._group.wait(SIGNALS_WAIT_S)
            if there:
                return
            if not said and time.monotonic() - began > _SAID_AFTER_S:
                said = True
                total = cores_of_cluster()
                logger.info("Ray: waiting for %d of the cluster's %d cores", self.cores, total)

    def place(self, number: int) -> dict[str, Any]:
        """Options of a task or an actor that has the core of this number."""
        return place_in(self._group, number)

    def end(self) -> None:
        """Give the cores back."""
        from ray.util import remove_placement_group

        remove_placement_group(self._group)


def place_in(group: Any, number: int) -> dict[str, Any]:
    """Options of a task or an actor that has one core of a placement group."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
    return {"num_cpus": 1, "scheduling_strategy": strategy}
