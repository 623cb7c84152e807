"""This process as a driver of a Ray cluster: its connection, the cores that it reserves, and what
of Ray's ways is mended for a terminal."""

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from m2fdp.core.errors import InputError
from m2fdp.interruption import deferred

# Ray itself tries for minutes.
ANSWER_S = 5.0
SIGNALS_WAIT_S = 0.5
# Who waits no longer for others' cores is not told that it waits.
_SAID_AFTER_S = 3.0

logger = logging.getLogger(__name__)


@contextmanager
def connected(address: str | None, key: str, cores: int | None = None) -> Iterator[None]:
    """This process as a driver of the cluster at the address, which the user knows by a key. A task
    of a study is one already. Ray is known to be installed (`check_installed`).

    Args:
        address: HOST:PORT, or `auto` for a cluster that this machine is a node of; None = a
            cluster of this machine alone, for as long as it is needed.

    Raises:
        InputError: there is no cluster at the address, or a task of a study names one.
    """
    check_address(address, key)
    import ray

    if ray.is_initialized():
        if address is not None:
            problem = "is the study's to choose, whose cluster its runs share; use null"
            raise InputError(key, address, problem)
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to its makers
    own = {"num_cpus": cores, "include_dashboard": False} if address is None else {}
    # Ray takes SIGTERM over, which is ours to handle.
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise InputError(key, address, f"no connection to a Ray cluster: {reason}") from None
    finally:
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        with deferred():
            ray.shutdown()


def check_installed(key: str, value: str) -> None:
    """Refuse a key's value that needs Ray where there is none."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise InputError(key, value, "needs Ray: pip install -r requirements-ray.lock") from None


def check_address(address: str | None, key: str) -> None:
    """Refuse a cluster that can't be had; of a machine without one Ray says so at once."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address  # as Ray reads it
    if address in (None, "auto"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(key, address, "write auto, or HOST:PORT as `ray start` prints it")
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(key, address, f"nothing answers there: {error}") from None


def cores_of_cluster() -> int:
    """The cores of all nodes of the connected cluster."""
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


def wait_for(references: Sequence[Any], count: int = 1, timeout: float = inf) -> list[Any]:
    """The results that are there, once there are so many, or in time; Ctrl-C and SIGTERM are what
    they are elsewhere.
    """
    import ray

    began = time.monotonic()
    while True:
        # Ray would turn any signal into Ctrl-C.
        with deferred():
            done, _ = ray.wait(list(references), num_returns=count, timeout=SIGNALS_WAIT_S)
        if len(done) >= count or time.monotonic() - began > timeout:
            return done


def cause_of(error: Exception) -> str:
    """The last line of what Ray says of an error in the work itself."""
    return str(error).strip().splitlines()[-1]


class Reservation:
    """Cores of the connected cluster, one a place, which are taken together or not at all, so that
    runs never wait for each other with a part of what they need.
    """

    def __init__(self, cores: int) -> None:
        from ray.util import placement_group

        self.cores = cores
        self.group = placement_group([{"CPU": 1}] * cores, strategy="SPREAD")

    def wait(self) -> None:
        """Wait until nobody else has them."""
        began, said = time.monotonic(), False
        while True:
            with deferred():
                there = self.group.wait(SIGNALS_WAIT_S)
            if there:
                return
            if not said and time.monotonic() - began > _SAID_AFTER_S:
                said = True
                total = cores_of_cluster()
                logger.info("Ray: waiting for %d of the cluster's %d cores", self.cores, total)

    def end(self) -> None:
        """Give the cores back."""
        from ray.util import remove_placement_group

        remove_placement_group(self.group)


def place_in(group: Any, number: int) -> dict[str, Any]:
    """Options of a task or an actor that has the core of this number of a placement group."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
    return {"num_cpus": 1, "scheduling_strategy": strategy}
