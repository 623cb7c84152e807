"""A rehearsal on one machine: keys, plan, processes, and the simulator's run beside theirs."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.utils import parameters_to_vector

from m2fdp.core.config import Config
from m2fdp.core.streams import KeyedStreams
from m2fdp.deployment import keys
from m2fdp.deployment.facts import Facts
from m2fdp.deployment.plan import PublicPlan, experiment_of, make_plan, recompute
from m2fdp.deployment.rehearsed import reference, simulated
from m2fdp.experiment import Experiment
from m2fdp.given.loading import load_config

_USUAL = {
    "topology.fanouts": "2|2",
    "training.rounds": 5,
    "privacy.mechanism": "upload",
    "deployment.rehearsal": True,
    "dataset.confirmed": True,  # its digits were scaled by 16
}
_MASKS = {"secure_aggregation.layers": "1|2", "secure_aggregation.protocol": "masks"}
_LOCALHOST = "127.0.0.1"
# A child that nobody asks leaves when the cloud says so; so long it may take.
_LEAVING_S = 20


@dataclass(eq=False)
class Rehearsal:
    """A plan with the files of all its nodes, and the processes that are started of them. Devices
    trust whom the plan has them trust; `more` is what further options each node's command has."""

    experiment: Experiment
    plan: PublicPlan
    folder: Path
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def cloud(self) -> str:
        return self.experiment.network.tree.names[0][0]

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a node's process, once more if it was there before. A device's budget is what the
        plan costs, and a hair more."""
        devices, folder = self.experiment.network.tree.names[-1], self.folder
        data = ["--data", f"{folder}/{name}.npz"]
        own = ["serve", *data, "--out", str(folder)] if name == self.cloud else ["serve"]
        if name in devices:
            largest = max(map(float, self.plan.content["epsilon"].values()))
            trusts = recompute(self.plan).readers_in_clear(devices.index(name))
            own = ["join", *data, "--budget", f"{largest * 1.001:.6g}"]
            own += [f"--trusts={server}" for server in trusts]
        at = [f"{folder}/plan.json", "--as", name, "--keys", f"{folder}/keys/{name}", "--rehearsal"]
        command = [sys.executable, "-m", "m2fdp.deployment", *own, *at, *self.more.get(name, ())]
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        return self.processes[name]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start_all(self) -> None:
        for names in self.experiment.network.tree.names:
            for name in names:
                self.start(name)

    def wait(self, seconds: float) -> int:
        """Wait for the cloud, then for all others; the cloud's exit code."""
        code = self.processes[self.cloud].wait(seconds)
        for process in self.processes.values():
            process.wait(_LEAVING_S)
        return code

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def weights(self) -> torch.Tensor:
        """(M,), what the cloud has ended in."""
        cell = self.experiment.config.cell
        model = torch.load(self.folder / f"data/06_models/{cell}/model.pt", weights_only=True)
        return parameters_to_vector(model.values())

    def ledger(self) -> pd.DataFrame:
        cell = self.experiment.config.cell
        return pd.read_csv(self.folder / f"data/08_reporting/{cell}/privacy_ledger.csv")


def prepare(config: Config, folder: Path) -> Rehearsal:
    """Keys, plan and records of all nodes of a configuration, in a folder."""
    experiment = experiment_of(config).from_config(simulated(config))
    tree, samples = experiment.network.tree, experiment.samples
    servers = [name for names in tree.names[:-1] for name in names]
    records = dict(zip(tree.names[-1], map(int, samples.sizes), strict=True))
    addresses = dict(zip(servers, _free_addresses(len(servers)), strict=True))
    dataset = experiment.dataset
    facts = Facts(addresses, records, dataset.shape, dataset.n_classes)
    noise = experiment.simulation().randomness.noise
    assert isinstance(noise, KeyedStreams)
    plan = make_plan(config, facts, noise.release)
    authority = folder / "authority"
    keys.make_authority(authority)
    plan.save(folder / "plan.json", authority)
    held = zip(tree.names[-1], np.split(samples.samples, samples.offsets[1:-1]), strict=True)
    for name in (*servers, *tree.names[-1]):
        own = folder / "keys" / name
        keys.sign(keys.request(name, own), authority)
    for name, rows in (*held, (tree.names[0][0], experiment.held_out)):
        np.savez(folder / f"{name}.npz", x=dataset.images[rows], y=dataset.labels[rows])
    return Rehearsal(experiment, plan, folder)


def rehearse(
    sources: Sequence[str | Path | Mapping[str, Any]],
    folder: Path | None,
    tell: Callable[[str], None],
    masks: bool = False,
) -> bool:
    """Run a configuration as processes and in the simulator; whether the two are equal. With masks
    servers read sums only, of a tree of two tiers unless the configuration says which."""
    config = load_config(_USUAL, _MASKS if masks else {}, *sources)
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory()))
        began = time.perf_counter()
        rehearsal = prepare(config, folder)
        stack.callback(rehearsal.end)
        tree = rehearsal.experiment.network.tree
        shape = "-".join(str(tree.n_nodes(layer)) for layer in range(tree.depth + 1))
        tell(f"{shape} processes over TLS on {_LOCALHOST}, {config.algorithm}, a rehearsal")
        rehearsal.start_all()
        code = rehearsal.wait(3600)
        lines = rehearsal.log(rehearsal.cloud).read_text(encoding="utf-8").splitlines()
        for line in lines:
            tell(f"  {line}")
        if code:
            return False
        for name in tree.names[-1]:
            spent = re.findall(r"epsilon .*", rehearsal.log(name).read_text(encoding="utf-8"))
            tell(f"  {name}: {spent[-1] if spent else 'nothing spent'}")
        tell(f"{time.perf_counter() - began:.1f} s in all; the same run in the simulator …")
        weights, ledger = reference(rehearsal.experiment)
        equal = torch.equal(weights, rehearsal.weights())
        tell("bytes equal" if equal else "bytes differ")
        # To the digit; a file knows no types.
        same_ledger = ledger.to_csv(index=False) == rehearsal.ledger().to_csv(index=False)
        tell("ledgers equal" if same_ledger else "ledgers differ")
        return equal and same_ledger


def _free_addresses(count: int) -> list[str]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server((_LOCALHOST, 0))) for _ in range(count)]
        return [f"{_LOCALHOST}:{each.getsockname()[1]}" for each in sockets]
