"""m2fdp's own engine, as an experiment puts it together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from torch import Tensor

from benchmarks.contenders import Round
from benchmarks.works import (
    CLIPPING_NORM,
    N_CLASSES,
    NOISE_MULTIPLIER,
    Data,
    Work,
    build_data,
    build_work_model,
)
from m2fdp import Experiment, load_config
from m2fdp.data.dataset import Dataset
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.calibration import no_privacy
from m2fdp.privacy.mechanisms import Clipping, silence, step_together
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.minibatches import Shards
from m2fdp.simulation.sampling import sampling_rates
from m2fdp.simulation.tree_process import TreeProcess
from m2fdp.streams import seeded
from m2fdp.topology.network import Network

_ALGORITHMS = {"none": "hfl", "untrusted": "hfl_dp", "half": "m2fdp", "trusted": "m2fdp"}


def prepare(work: Work, threads: int, device: str) -> Round:
    """Poisson-sampled minibatches; under DP the mechanism `gradient`."""
    process, (plan, *_) = build(work, threads, device)  # all rounds are alike
    state = process.start()

    def round_() -> Tensor:
        nonlocal state
        state = process.round(state, plan)
        return state.weights

    return round_


def build(work: Work, workers: int, device: str) -> tuple[TreeProcess, tuple[RoundPlan, ...]]:
    """How the work's rounds are computed, and their plans."""
    trusted, data = 0.5 if work.privacy == "half" else 1.0, build_data(work, device)
    experiment = Experiment.from_config(
        load_config(
            {
                "topology.fanouts": list(work.fanouts),
                "topology.trust.ratios": [trusted] * (len(work.fanouts) - 1),
                "training.rounds": work.rounds,
                "training.local_steps": work.local_steps,
                "training.local_aggregation": None,
                "training.batch_size": work.batch,
                "training.learning_rate": work.learning_rate,
            },
            algorithm=_ALGORITHMS[work.privacy],
            seed=work.seed,
            device=device,
            threads=workers,
        ),
        *_dealt(work, data),
    )
    config, plan, rounds = experiment.config, experiment.plan, experiment.run_plan.rounds
    sizes = np.full(work.devices, work.records)
    mechanism = no_privacy(plan.network, rounds, config.privacy, config.threat)
    if plan.private:
        mechanism = _noised(mechanism, plan.network, work)
    simulation = experiment.simulation(
        mechanisms=(mechanism,),
        model=build_work_model(work),
        shards=Shards(data.features, data.labels, sizes, sampling_rates(sizes, work.batch)),
        randomness=seeded(work.seed, work.name.encode()),
    )
    return experiment.process(simulation), rounds


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


def _noised(mechanism: CalibratedMechanism, network: Network, work: Work) -> CalibratedMechanism:
    """Noise by the given multiplier instead of by a target: calibration is not measured."""
    lock_step = step_together(network)
    shift = np.zeros(len(lock_step.nodes))
    np.maximum.at(shift, lock_step.group_of, lock_step.weights * CLIPPING_NORM / work.batch)
    noise = replace(silence(network, lock_step), steps=NOISE_MULTIPLIER * shift)
    clipping = Clipping("expected", record_norm=CLIPPING_NORM)
    return replace(mechanism, clipping=clipping, lock_step=lock_step, noise=noise, private=True)
