"""m2fdp's own engine, put together as the training pipeline does it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from benchmarks.contenders import Round
from benchmarks.works import (
    CLIPPING_NORM,
    NOISE_MULTIPLIER,
    Work,
    build_data,
    build_work_model,
)
from m2fdp.algorithms import build_plan
from m2fdp.config import (
    Config,
    PrivacyConfig,
    ThreatConfig,
    TopologyConfig,
    TrainingConfig,
    TrustConfig,
)
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.calibration import no_privacy
from m2fdp.privacy.mechanisms import Clipping, silence, step_together
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.arithmetic import set_exact_arithmetic
from m2fdp.simulation.executor import ExecutionSettings
from m2fdp.simulation.minibatches import Shards
from m2fdp.simulation.sampling import sampling_rates
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.tree_process import TreeProcess, build_process
from m2fdp.streams import seeded
from m2fdp.topology.network import Network

_ALGORITHMS = {"none": "hfl", "untrusted": "hfl_dp", "trusted": "m2fdp"}


def prepare(work: Work, threads: int, device: str) -> Round:
    """Poisson-sampled minibatches; under DP the mechanism `gradient`."""
    set_exact_arithmetic()
    process, plans = build(work, threads, device)
    state = process.start()

    def round_() -> Tensor:
        nonlocal state
        state = process.round(state, plans[state.round])
        return state.weights

    return round_


def build(work: Work, workers: int, device: str) -> tuple[TreeProcess, tuple[RoundPlan, ...]]:
    """How the work's rounds are computed, and their plans."""
    training = TrainingConfig(
        rounds=work.rounds,
        local_steps=work.local_steps,
        batch_size=work.batch,
        learning_rate=work.learning_rate,
    )
    ratios = [1.0] * (len(work.fanouts) - 1) if work.privacy == "trusted" else None
    topology = TopologyConfig(fanouts=list(work.fanouts), trust=TrustConfig(ratios=ratios))
    plan = build_plan(
        Config(
            algorithm=_ALGORITHMS[work.privacy],
            seed=work.seed,
            topology=topology,
            training=training,
        )
    )
    data = build_data(work, device)
    sizes = np.full(work.devices, work.records)
    shards = Shards(data.features, data.labels, sizes, sampling_rates(sizes, work.batch))
    privacy = PrivacyConfig(epsilon=1, delta=1e-5, clipping_norm=CLIPPING_NORM)
    mechanism = no_privacy(plan.network, plan.schedule.round_plans(), privacy, ThreatConfig())
    if plan.private:
        mechanism = _noised(mechanism, plan.network, work)
    simulation = Simulation(
        (plan.network,),
        (mechanism,),
        build_work_model(work),
        shards,
        seeded(work.seed, work.name.encode()),
    )
    settings = ExecutionSettings(training.backend, training.chunk_size, workers)
    return build_process(simulation, settings), plan.schedule.round_plans()


def _noised(mechanism: CalibratedMechanism, network: Network, work: Work) -> CalibratedMechanism:
    """Noise by the given multiplier instead of by a target: calibration is not measured."""
    lock_step = step_together(network)
    shift = np.zeros(len(lock_step.nodes))
    np.maximum.at(shift, lock_step.group_of, lock_step.weights * CLIPPING_NORM / work.batch)
    noise = replace(silence(network, lock_step), steps=NOISE_MULTIPLIER * shift)
    clipping = Clipping("expected", record_norm=CLIPPING_NORM)
    return replace(mechanism, clipping=clipping, lock_step=lock_step, noise=noise, private=True)
