"""Cores of a Ray cluster that compute one run's rounds, block by block."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from m2fdp.core.engine.process import SitesLostError
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import counted
from m2fdp.interruption import deferred
from m2fdp.processes import connection
from m2fdp.processes.config import ExecutionConfig
from m2fdp.processes.elsewhere import Piece, Site
from m2fdp.processes.tasks import Pending

ADDRESS, ENGINE, WORKERS = "execution.address", "execution.engine", "execution.workers"
# Where all are lost, whoever is not there by then is not waited for.
_RESTART_S = 20.0

logger = logging.getLogger(__name__)


def check_execution(execution: ExecutionConfig) -> None:
    """Refuse a cluster that can't be had, before anything is computed."""
    if execution.engine == "ray":
        connection.check_installed(ENGINE, execution.engine)
        connection.check_address(execution.address, ADDRESS)


@contextmanager
def sites_of(execution: ExecutionConfig, cores: int) -> Iterator[RaySites | None]:
    """The sites that compute a run's rounds; None where this machine's processes do.

    Raises:
        InputError: Ray is not installed, no cluster is at the address, or it has fewer cores than
            are asked for.
    """
    if execution.engine == "local":
        yield None
        return
    check_execution(execution)
    with (
        connection.connected(execution.address, ADDRESS, cores),
        _places(execution.workers) as places,
    ):
        sites = RaySites(places)
        try:
            yield sites
        finally:
            with deferred():
                sites.end()


@contextmanager
def _places(workers: int | None) -> Iterator[list[dict[str, Any]]]:
    """Options that place an actor on each core that the run may use: of a cell of a study those
    that the study has reserved for it."""
    from ray.util import get_current_placement_group

    group = get_current_placement_group()
    if group is not None:
        yield [connection.place_in(group, number) for number in range(1, group.bundle_count)]
        return
    there = connection.cores_of_cluster()
    if workers is not None and workers > there:
        raise InputError(WORKERS, workers, f"is more than the cluster's {counted(there, 'core')}")
    there = workers or there
    reservation = connection.Reservation(there)
    try:
        reservation.wait()
        yield [connection.place_in(reservation.group, number) for number in range(there)]
    finally:
        with deferred():
            reservation.end()


@dataclass(eq=False)
class _Member:
    """A site."""

    actor: Any
    node: str  # address of the node that it is on, with its number where several have that address
    held: set[Piece] = field(default_factory=set)  # the pieces that it can compute


class RaySites:
    """A site on each of some cores of the connected cluster (a `Sites`).

    What a lost one computed goes to those that are left; only where none is left, all are started
    again.
    """

    def __init__(self, places: Sequence[dict[str, Any]]) -> None:
        self.count = len(places)
        self._places = places
        self._members = self._start()
        if not self._members:
            raise SitesLostError("Ray: no node could start what computes the rounds.")
        logger.info("Ray: %s compute the rounds", self._present())

    def compute(
        self, announced: bytes, kept: Mapping[Piece, bytes], content_of: Callable[[Piece], bytes]
    ) -> Mapping[Piece, bytes]:
        """See `m2fdp.processes.elsewhere.Sites`.

        Raises:
            SitesLostError: no node is left, or those who computed a piece died twice.
            InputError: what a user's own code is refused for, or a node that can't do the work.
        """
        import ray
        from ray.exceptions import RayError, RayTaskError

        every, announced_there = list(kept), ray.put(announced)
        pending = Pending(len(every))
        running: dict[Any, tuple[int, _Member]] = {}
        results: dict[Piece, bytes] = {}
        while pending or running:
            while pending:
                number = pending.take()
                piece = every[number]
                member, content = self._holder(piece, content_of)
                compute = member.actor.compute
                result = compute.remote(piece, announced_there, kept[piece], content)
                running[result] = number, member
            (done,) = connection.wait_for(list(running))
            number, member = running.pop(done)
            try:
                results[every[number]] = ray.get(done)
            except RayTaskError as error:
                if isinstance(error.cause, InputError):
                    raise error.cause from None
                refusal = f"a node can't do the work: {connection.cause_of(error)}"
                raise InputError(ENGINE, "ray", refusal) from None
            except RayError:
                self._lose(member)
                if not pending.lose(number):
                    lost = "Ray: those who computed a piece died twice; is there enough memory?"
                    raise SitesLostError(lost) from None
        return results

    def end(self) -> None:
        """End all sites."""
        import ray

        for member in self._members:
            ray.kill(member.actor)
        self._members = []

    def _start(self, timeout: float = inf) -> list[_Member]:
        """A site in each place, as far as they answer in time."""
        import ray
        from ray.exceptions import RayError

        there = ray.remote(_SiteThere)
        environment = {"env_vars": {"OMP_NUM_THREADS": "1"}}
        actors = [
            there.options(runtime_env=environment, **place).remote(Path.cwd())
            for place in self._places
        ]
        answers = {actor.node.remote(): actor for actor in actors}
        done = connection.wait_for(list(answers), len(answers), timeout)
        for answer in answers.keys() - set(done):
            ray.kill(answers[answer])
        nodes: dict[Any, tuple[str, str]] = {}
        for answer in done:
            try:
                nodes[answer] = ray.get(answer)
            except RayError as error:
                logger.warning("Ray: a core can't be used: %s", connection.cause_of(error))
        alike = Counter(address for address, _ in set(nodes.values()))
        return [
            _Member(answers[answer], address if alike[address] == 1 else f"{address}/{number[:6]}")
            for answer, (address, number) in nodes.items()
        ]

    def _holder(
        self, piece: Piece, content_of: Callable[[Piece], bytes]
    ) -> tuple[_Member, bytes | None]:
        """Who computes a piece, and what it has to hold for that, if it does not yet."""
        for member in self._members:
            if piece in member.held:
                return member, None
        if not self._members:
            self._members = self._start(_RESTART_S)
            if not self._members:
                raise SitesLostError("Ray: no node is left that computes the rounds.")
        member = min(self._members, key=lambda member: len(member.held))
        member.held.add(piece)
        return member, content_of(piece)

    def _lose(self, member: _Member) -> None:
        """Somebody does not answer any more."""
        import ray

        if member not in self._members:
            return
        with suppress(Exception):  # it may be gone in any state
            ray.kill(member.actor)
        self._members.remove(member)
        remaining = self._present() if self._members else "none"
        logger.warning("Ray: a site on node %s is lost; left: %s", member.node, remaining)

    def _present(self) -> str:
        """How many cores of which nodes compute."""
        nodes = Counter(member.node for member in self._members)
        names = ", ".join(f"{node}: {cores}" for node, cores in nodes.items())
        return f"{counted(nodes.total(), 'core')} of {counted(len(nodes), 'node')} ({names})"


class _SiteThere(Site):
    """A site as an actor on a node."""

    def __init__(self, folder: Path) -> None:
        with suppress(OSError):  # only a user's own code is looked for there
            os.chdir(folder)
        super().__init__()

    def node(self) -> tuple[str, str]:
        """Address and number of the node."""
        import ray

        return ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
