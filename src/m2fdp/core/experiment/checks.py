"""What can be found wrong with a configuration alone, without torch and pandas: whoever is refused
waits for neither."""

import numpy as np

from m2fdp.core import own_code
from m2fdp.core.algorithms import Plan, build_plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.facts import features_of_runs, refuse
from m2fdp.core.experiment.facts.facts import KNOWN_ROUNDS
from m2fdp.core.experiment.facts.rule import told
from m2fdp.core.experiment.idle import refuse_idle
from m2fdp.core.experiment.request import OF_EXPERIMENTS, Request
from m2fdp.core.metrics import own_metrics
from m2fdp.core.models.names import check_model_name
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.rooms import brought
from m2fdp.core.schedule.rounds import check_pull
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import weighted


def check_config(config: Config, pipelines: frozenset[str] = OF_EXPERIMENTS) -> Plan:
    """Everything that can be found wrong without looking at data.

    Args:
        pipelines: see `Request`.

    Returns:
        The algorithm's plan, which whoever goes on with the configuration takes.

    Raises:
        InputError: naming the key, its value and what would be valid.
    """
    mechanism = get_mechanism(config.privacy.mechanism)
    mechanism.check(config.privacy)
    plan = build_plan(config)
    request = Request(config, plan, pipelines)
    check_model_name(config.model.name)
    for key in ("model.loss", "partition.scheme", "dataset.name"):
        name = request.value(key)
        if name is not None and own_code.is_own(name):
            own_code.load(key, name)
    own_metrics(config.training.metrics)
    refuse_idle(request)
    refuse(features_of_runs(), request)
    # Who chooses step sizes round by round checks them as it does.
    if plan.schedule.proximal and told(KNOWN_ROUNDS).holds(request):
        asked = plan.schedule.proximal == config.training.proximal
        key = "training.proximal" if asked else "Schedule.proximal"
        check_pull(plan.schedule.proximal, plan.schedule.step_size(1), key)  # the largest
    shards = np.ones(plan.network.tree.n_devices)  # whatever their sizes
    network = weighted(plan.network, shards, config.topology.weights)
    if plan.private:
        mechanism.check(config.privacy, network, plan.schedule.round_plans())
    if config.device.startswith("cuda"):
        from torch.cuda import is_available  # who asks for no GPU is not kept waiting for torch

        if not is_available():
            raise InputError("device", config.device, "no CUDA device is available; use cpu")
    return plan


def surprises(config: Config, plan: Plan) -> list[str]:
    """A line for each thing that is allowed and is seldom what was meant."""
    lines = [line for of_room in brought("surprises") for line in of_room(config, plan)]
    if told(KNOWN_ROUNDS).holds(Request(config, plan)):
        lines += never_due(plan.schedule)
    return lines


def never_due(schedule: Schedule) -> list[str]:
    """A line for each local aggregation that never comes."""
    if schedule.local_steps == 1:  # no round of one step has any, whatever an environment says
        return []
    due = {schedule.aggregation_layer(step) for step in range(1, schedule.local_steps)}
    return [
        f"training.local_aggregation.{layer} = {schedule.local_aggregation[layer]}: never comes, "
        f"as a round has {schedule.local_steps} local steps and aggregations nearer the cloud come "
        "first; use a smaller number, or null"
        for layer in sorted(schedule.local_aggregation.keys() - due)
    ]
