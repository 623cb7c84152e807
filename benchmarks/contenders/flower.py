"""Flower: FedAvg on its simulation runtime, one Ray actor a core."""

from __future__ import annotations

import json
import queue
import threading
from functools import cache

import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.contenders import Round
from benchmarks.works import Work, build_data, build_work_model, shards, work_from_json

client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """A device's round, as in Flower's PyTorch quickstart."""
    work_json = str(message.content["config"]["work"])
    loader = _loaders(work_json)[int(context.node_config["partition-id"])]
    work = work_from_json(json.loads(work_json))
    model = build_work_model(work).module
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=work.learning_rate)
    for _ in range(work.epochs):
        for features, labels in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(features), labels).backward()
            optimiser.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": work.records}),
        }
    )
    return Message(content=content, reply_to=message)


@cache
def _loaders(work_json: str) -> list[DataLoader]:
    """All devices' loaders, made once in each actor."""
    torch.set_num_threads(1)
    work = work_from_json(json.loads(work_json))
    return [
        DataLoader(TensorDataset(*shard), batch_size=work.batch, shuffle=True)
        for shard in shards(work, build_data(work))
    ]


def prepare(work: Work, threads: int, device: str) -> Round:
    """Starts Ray and the actors; the strategy's loop then waits for its turns.

    Raises:
        RuntimeError: another device than the CPU.
    """
    if device != "cpu":
        raise RuntimeError("Flower's actors are measured on the CPU only")
    turns: queue.Queue[None] = queue.Queue()
    finished: queue.Queue[Tensor | BaseException] = queue.Queue()
    model = build_work_model(work).module
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        def between_rounds(_: int, arrays: ArrayRecord) -> None:
            model.load_state_dict(arrays.to_torch_state_dict())
            finished.put(parameters_to_vector(model.parameters()).detach())
            turns.get()

        FedAvg(fraction_evaluate=0.0, min_available_nodes=work.devices).start(
            grid,
            ArrayRecord(model.state_dict()),
            num_rounds=work.most_rounds,
            train_config=ConfigRecord({"work": json.dumps(work.to_json())}),
            evaluate_fn=between_rounds,
        )

    def simulate() -> None:
        try:
            run_simulation(
                server_app,
                client_app,
                num_supernodes=work.devices,
                backend_config={
                    "init_args": {"num_cpus": threads},
                    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                },
            )
        except BaseException as error:
            finished.put(error)

    threading.Thread(target=simulate, daemon=True).start()
    _result(finished)

    def round_() -> Tensor:
        turns.put(None)
        return _result(finished)

    return round_


def _result(finished: queue.Queue[Tensor | BaseException]) -> Tensor:
    result = finished.get()
    if isinstance(result, BaseException):
        raise result
    return result
