"""The tier process: clients train parts of a split model, and their models are averaged (D Sec.
3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.process import Simulation, Slots, State, Tap, shared_tensor
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.processes.workers import Workers
from m2fdp.tiers.local import Client, LocalTraining, Trainer, rows_of
from m2fdp.tiers.split_models import SplitModel

# Models of clients that are kept at a time.
_RESULT_BYTES = 2**27


@dataclass(eq=False)
class TierExecutor:
    """The means to run the rounds; they are written to.

    Attributes:
        results: (n, M), the models of the clients that are trained between two sums.
    """

    workers: Workers
    trainer: Trainer
    results: Tensor


@dataclass(frozen=True, eq=False)
class TierProcess:
    """The rounds of a simulation whose clients train in tiers (a `Process`).

    Attributes:
        simulation: its network is a star.
        model: the simulation's.
        cuts: int64 (R, K), the modules that each client trains itself in each round; below 1 =
            it does not take part.
    """

    simulation: Simulation
    model: SplitModel
    cuts: np.ndarray
    executor: TierExecutor

    @property
    def draws(self) -> frozenset[str]:
        return frozenset()

    def start(self) -> State:
        weights = self.model.initial_vector().to(self.simulation.shards.features)
        server = self.simulation.rules.server.start(self._stepped(weights))
        return State(0, weights, Slots(server))

    def round(self, state: State, plan: RoundPlan, tap: Tap | None = None) -> State:
        """Everybody who takes part trains from the global model; the mean is the next one.

        Clients are summed in their order, so no result depends on the number of processes. Batch
        norm's means and variances are averaged, and no server rule steps them.
        """
        cuts, sizes = self.cuts[state.round], self.simulation.shards.sizes
        present = np.flatnonzero(cuts > 0)
        weights = self._weights(present)
        mean = torch.zeros_like(state.weights)
        places = {int(tier): self.model.head_place(int(tier)) for tier in self.model.heads}
        heads = {
            tier: (float(weights[cuts[present] == tier].sum()), torch.zeros_like(mean[place]))
            for tier, place in places.items()
        }
        sent = mean.new_zeros(len(cuts), len(mean)) if tap is not None else None
        results = self.executor.results
        for first in range(0, len(present), len(results)):
            clients = present[first : first + len(results)]
            work = partial(_train, self, clients, state, plan.step_size)
            costs = sizes[clients].astype(np.float64)
            self.executor.workers.share("clients", costs, work, fixed=(self,))
            for client, vector in zip(clients.tolist(), results, strict=False):
                weight, tier = float(weights[np.searchsorted(present, client)]), int(cuts[client])
                mean.add_(vector, alpha=weight)
                if tier in heads:
                    total, head = heads[tier]
                    head.add_(vector[places[tier]], alpha=weight / total)
                if sent is not None:
                    sent[client] = vector
        if tap is not None and sent is not None:
            tap("up", 1, sent)
        for tier, (total, head) in heads.items():
            mean[places[tier]] = head if total else state.weights[places[tier]]
        stepped, server = self.simulation.rules.server.step(
            self._stepped(state.weights), self._stepped(mean), state.slots.server
        )
        following = torch.cat((stepped, mean[self.model.buffers_place]))
        return State(state.round + 1, following, Slots(server))

    def _stepped(self, vector: Tensor) -> Tensor:
        """All but what batch norm keeps."""
        return vector[: self.model.buffers_place.start]

    def _weights(self, present: np.ndarray) -> np.ndarray:
        """Of those who take part, float64; they sum to one."""
        records = self.simulation.shards.sizes[present]
        return records / records.sum()


def _train(
    process: TierProcess, clients: np.ndarray, state: State, step_size: float, part: range
) -> None:
    """Train some of the clients int64 (n,), and leave their models in `results`."""
    simulation, executor = process.simulation, process.executor
    rows, cuts = rows_of(simulation.shards.sizes), process.cuts[state.round]
    records = simulation.shards.features, simulation.shards.labels
    draws = simulation.randomness.sampling, state.round + 1
    for place in part:
        number = int(clients[place])
        client = Client(number, rows[number], int(cuts[number]))
        executor.results[place] = executor.trainer.update(
            state.weights, records, client, step_size, draws
        )


def build_tier_process(
    simulation: Simulation, cuts: np.ndarray, settings: LocalTraining, workers: int
) -> TierProcess:
    """The rounds of a simulation in tiers, with the means to run them.

    Args:
        cuts: see `TierProcess`.
        workers: processes that share the clients, on a CPU.
    """
    model, features = simulation.model, simulation.shards.features
    if not isinstance(model, SplitModel):
        raise TypeError(f"a split model, not {model.name}")
    at_a_time = max(_RESULT_BYTES // (4 * model.n_parameters), 1)
    n_results = min(int((cuts > 0).sum(axis=1).max()), at_a_time)
    executor = TierExecutor(
        Workers(workers if features.device.type == "cpu" else 1),
        Trainer(model, settings, features),
        shared_tensor(n_results, model.n_parameters, features.dtype).to(features.device),
    )
    return TierProcess(simulation, model, cuts, executor)
