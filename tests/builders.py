"""Runs that tests put together from parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.executor import ExecutionSettings
from m2fdp.simulation.process import State
from m2fdp.simulation.simulation import Rules, Simulation
from m2fdp.simulation.tree_process import TreeProcess, build_process
from m2fdp.streams import Randomness, seeded


def process_of(
    network,
    mechanism,
    model,
    shards,
    randomness: Randomness | None = None,
    rules: Rules | None = None,
    **settings,
) -> TreeProcess:
    """The rounds of one network, with streams of the test's own."""
    simulation = Simulation(
        (network,),
        (mechanism,),
        model,
        shards,
        randomness or seeded(0, b"test"),
        rules or Rules(),
    )
    return build_process(simulation, ExecutionSettings(**settings))


class CutOff:
    """A process that does `end()` in the place of one of its rounds."""

    def __init__(self, process: TreeProcess, last: int, end: Callable[[], None]) -> None:
        self.process, self.last, self.end = process, last, end

    def round(self, state: State, plan: RoundPlan, tap=None) -> State:
        if state.round == self.last:
            self.end()
        return self.process.round(state, plan, tap)


def last_state(process: TreeProcess, plans: Sequence[RoundPlan], tap=None) -> State:
    """The state after all rounds, heard by a tap or not."""
    state = process.start()
    for plan in plans:
        state = process.round(state, plan, tap)
    return state
