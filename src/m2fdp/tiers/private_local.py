"""A client's epochs where its server is trusted by nobody: what it sends is noised.

In every batch the client sends its records' activations, clipped and noised, and steps its own part
of the model by the noised sum of its records' clipped gradients; the server steps the rest on what
it receives. Whatever steps them, Adam's moments too, follows from these releases
(`m2fdp.tiers.split_noise`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.streams import Streams
from m2fdp.tiers.local import Client, LocalTraining
from m2fdp.tiers.split_rounds import splitter_of
from m2fdp.tiers.split_steps import Splits, Splitter


class PrivateTrainer:
    """Trains clients one after the other, as `m2fdp.tiers.local.Trainer` does without noise.

    Args:
        batches: float64 (K,), the records of a client's full batch, which noise is planned for.
    """

    def __init__(self, splitter: Splitter, settings: LocalTraining, batches: np.ndarray) -> None:
        self.splitter, self.settings, self.batches = splitter, settings, batches

    def update(
        self,
        vector: Tensor,
        records: tuple[Tensor, Tensor],
        client: Client,
        step_size: float,
        draws: tuple[Streams, int],
    ) -> Tensor:
        streams, round_ = draws
        order = streams.generator("tier-batches", round_, client.number)
        size = client.rows.stop - client.rows.start
        values = nn.Parameter(vector.clone())
        optimizer = self.settings.new_optimizer([values], step_size)
        trained = self.splitter.trained(client.cut).to(vector.device)
        step = 0
        for _ in range(self.settings.epochs):
            shuffled = client.rows.start + order.permutation(size)
            for first in range(0, size, self.settings.batch_size):
                step += 1
                batch = shuffled[first : first + self.settings.batch_size]
                model = values.detach().clone()
                values.grad = self._gradient(model, records, client, batch, (round_, step))
                optimizer.step()
                with torch.no_grad():  # no decay of what is not this client's to step
                    values.copy_(torch.where(trained, values, vector))
        return values.detach()

    def _gradient(
        self,
        model: Tensor,
        records: tuple[Tensor, Tensor],
        client: Client,
        batch: np.ndarray,
        at: tuple[int, int],
    ) -> Tensor:
        """(M,), over the records of a batch, int64 (b,)."""
        device = np.array([client.number])
        weights = np.append(np.full(len(batch), 1 / len(batch)), 0.0)
        batches = Minibatches(
            *records,
            np.append(batch, 0),
            weights.astype(np.float64 if model.dtype == torch.float64 else np.float32),
            np.array([0, len(batch)]),
            consecutive=False,
        )
        noise = self.splitter.draw(0, at, device, model)
        if noise is not None:
            # That of a sum is the same however many records it has.
            noise = replace(
                noise, gradients=noise.gradients * (self.batches[client.number] / len(batch))
            )
        return self.splitter.gradients(model[None], batches, client.cut, noise)[0]


def build_private_trainer(
    simulation: Simulation, splits: Splits, settings: LocalTraining
) -> PrivateTrainer:
    """What trains the clients of a simulation whose mechanism noises what they send.

    Raises:
        TypeError: the model is not split.
    """
    backend, shards = "reference" if settings.two_party else "sequential", simulation.shards
    splitter = splitter_of(simulation.having(splits), backend)
    if splitter is None:
        raise TypeError(f"a split model, not {simulation.model.name}")
    return PrivateTrainer(splitter, settings, shards.rates * shards.sizes)
