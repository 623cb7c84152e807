"""m2fdp's own engine, as an experiment puts it together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import pandas as pd
from torch import Tensor

from benchmarks.contenders import Round
from benchmarks.works import (
    CLIPPING_NORM,
    N_CLASSES,
    Data,
    Work,
    build_data,
    build_work_model,
)
from m2fdp import Experiment, load_config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.minibatches import Shards, sampling_rates
from m2fdp.core.engine.tree_process import TreeProcess
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import seeded
from m2fdp.processes.elsewhere import Sites

# As long as this process, which the race ends with whatever it has started.
_HELD = ExitStack()
_ALGORITHMS = {"none": "hfl", "untrusted": "hfl_dp", "half": "m2fdp", "trusted": "m2fdp"}


def prepare(work: Work, threads: int, device: str) -> Round:
    """Poisson-sampled minibatches."""
    return _rounds(*build(work, threads, device))


def prepare_on_ray(work: Work, threads: int, device: str) -> Round:
    """The same on a cluster of so many local nodes, with a core each."""
    from ray.cluster_utils import Cluster

    from m2fdp.processes.config import ExecutionConfig
    from m2fdp.processes.sites import sites_of

    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 500_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(threads - 1):
        cluster.add_node(**node)
    execution = ExecutionConfig(engine="ray", address=cluster.address)
    sites = _HELD.enter_context(sites_of(execution, cores=1))
    return _rounds(*build(work, 1, device, sites))


def _rounds(process: TreeProcess, plans: Sequence[RoundPlan]) -> Round:
    """A round after the other; all are alike."""
    plan, state = plans[0], process.start()

    def round_() -> Tensor:
        nonlocal state
        state = process.round(state, plan)
        return state.weights

    return round_


def build(
    work: Work, workers: int, device: str, sites: Sites | None = None
) -> tuple[TreeProcess, tuple[RoundPlan, ...]]:
    """How the work's rounds are computed, and their plans."""
    trusted, data = 0.5 if work.privacy == "half" else 1.0, build_data(work, device)
    experiment = Experiment.from_config(
        load_config(
            {
                "topology.fanouts": list(work.fanouts),
                "topology.trust.ratios": [trusted] * (len(work.fanouts) - 1),
                "training.rounds": work.rounds,
                "training.local_steps": work.local_steps,
                "training.local_aggregation": {1: work.local_aggregation},
                "training.batch_size": work.batch,
                "training.learning_rate": work.learning_rate,
                "privacy.mechanism": work.mechanism,
                # Not by a target: calibration is not measured.
                "privacy.calibration": "multiplier",
                "privacy.noise_multiplier": work.noise_multiplier,
                "privacy.clipping_norm": CLIPPING_NORM,
            },
            algorithm=_ALGORITHMS[work.privacy],
            seed=work.seed,
            device=device,
            threads=workers,
        ),
        *_dealt(work, data),
    )
    sizes = np.full(work.devices, work.records)
    simulation = experiment.simulation(
        model=build_work_model(work),
        shards=Shards(data.features, data.labels, sizes, sampling_rates(sizes, work.batch)),
        randomness=seeded(work.seed, work.name.encode()),
    )
    return experiment.process(simulation, sites), experiment.run_plan.rounds


def _dealt(work: Work, data: Data) -> tuple[Dataset, pd.DataFrame]:
    """The training records as they are, without a copy, and whose each is."""
    images, labels = data.features.cpu().permute(0, 2, 3, 1).numpy(), data.labels.cpu().numpy()
    dataset = Dataset(work.name, images, labels, len(labels), N_CLASSES)
    manifest = pd.DataFrame(
        {
            "dataset": work.name,
            "sample": np.arange(len(labels)),
            "split": "train",
            "label": labels,
            "device": np.repeat(np.arange(work.devices), work.records),
        }
    )
    return dataset, manifest
