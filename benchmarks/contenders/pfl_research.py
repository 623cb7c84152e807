"""pfl-research: federated averaging on its simulated backend, one or several processes."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from benchmarks.contenders import Round
from benchmarks.works import Work, build_data, build_work_model, shards, work_from_json


def prepare(work: Work, threads: int, device: str) -> Round:
    """One process with all threads."""
    os.environ["PFL_PYTORCH_DEVICE"] = device
    return _prepare(work)


def prepare_distributed(work: Work, threads: int, device: str) -> Round:
    """A process a core with one thread each, joined by torch.distributed as the guide says."""
    os.environ["PFL_PYTORCH_DEVICE"] = device
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"localhost:{port}" for port in _ports(threads))
    torch.set_num_threads(1)
    command = [sys.executable, "-m", __name__, json.dumps(work.to_json())]
    followers = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            text=True,
            env=os.environ | {"PFL_WORKER_RANK": str(rank), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(1, threads)
    ]
    os.environ["PFL_WORKER_RANK"] = "0"
    own_share = _prepare(work)

    def round_() -> Tensor | None:
        # Without the signal a follower would do its share of the next round on others' time.
        for follower in followers:
            print(file=follower.stdin, flush=True)
        return own_share()

    return round_


def _ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _prepare(work: Work) -> Round:
    # pfl joins the other processes when it is imported.
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class OneRound(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            return True, Metrics()

    device = os.environ["PFL_PYTORCH_DEVICE"]
    module = _with_loss(build_work_model(work).module)
    # Datasets are made once; every round visits every device, in order.
    datasets = [PyTorchTensorDataset(shard) for shard in shards(work, build_data(work, device))]
    turns = itertools.cycle(range(work.devices))
    cohorts = FederatedDataset(lambda i: datasets[i], lambda: next(turns))
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    algorithm = FederatedAveraging()
    # Evaluation happens at the iterations that the frequency divides: at 0 only.
    algorithm._current_central_iteration = 1
    parameters = NNAlgorithmParams(
        central_num_iterations=work.most_rounds + 1,
        evaluation_frequency=work.most_rounds + 1,
        train_cohort_size=work.devices,
        val_cohort_size=None,
    )
    local = NNTrainHyperParams(
        local_num_epochs=work.epochs,
        local_learning_rate=work.learning_rate,
        local_batch_size=work.batch,
    )
    backend = SimulatedBackend(training_data=cohorts, val_data=cohorts)

    def round_() -> Tensor:
        algorithm.run(
            parameters,
            backend,
            model,
            local,
            NNEvalHyperParams(local_batch_size=None),
            [OneRound()],
            send_metrics_to_platform=False,
        )
        return parameters_to_vector(module.parameters()).detach()

    return round_


def _with_loss(module: nn.Module) -> nn.Module:
    """pfl asks modules for their loss and metrics."""
    module = deepcopy(module)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(module(features), labels)

    module.loss = loss
    module.metrics = lambda features, labels: {}
    return module


def _follow() -> None:
    work = work_from_json(json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    round_ = _prepare(work)
    for _ in sys.stdin:
        round_()


if __name__ == "__main__":
    _follow()
