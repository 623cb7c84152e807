"""What can be found wrong with a configuration alone, without torch and pandas: whoever is refused
waits for neither. First what a run can have, with what it needs, in the order of refusals."""

from collections.abc import Iterator

import numpy as np

from m2fdp.core import own_code
from m2fdp.core.algorithms import Plan, build_plan
from m2fdp.core.config import Config, ThreatConfig
from m2fdp.core.config.keys import BY_LABEL
from m2fdp.core.engine.rules import server_rule_of
from m2fdp.core.errors import BLOCK, InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Feature, always, has_plain_steps, noised_later, refuse, told
from m2fdp.core.experiment.request import OF_EXPERIMENTS, Request, refuse_idle
from m2fdp.core.models.checks import check_loss_name, check_model_name
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.rooms import brought
from m2fdp.core.schedule.rounds import check_pull
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import heads_of, weighted

Wrong = Iterator[InputError]


def of_noise(run: Request) -> Wrong:
    """A mechanism that the algorithm is defined for, and that draws all noise of the network."""
    privacy, name, tree = run.privacy, run.config.algorithm, run.network.tree
    if privacy.calibration == "multiplier" and privacy.noise_multiplier is None:
        text = "noise_multiplier (z) and calibration: multiplier belong together"
        yield InputError("privacy", BLOCK, text)
    able = run.algorithm.mechanisms
    if able is not None and privacy.mechanism not in able:
        text = f"is not that of algorithm: {name}; use {', '.join(sorted(able))}"
        yield InputError("privacy.mechanism", privacy.mechanism, text)
    if not run.plan.private or not run.mechanism.noises_every_step:
        return
    head_layers = heads_of(run.network)[:, 0]
    for layer, noise in enumerate(run.network.noise):
        below = tree.ancestors[layer][head_layers < layer]
        for node in below[noise[below] > 0]:
            text = (
                f"noises every step where it leaves the last trusted node, so that what "
                f"{tree.names[layer][node]} adds below that is never drawn (algorithm: {name}); "
                "use mechanism: upload"
            )
            yield InputError("privacy.mechanism", privacy.mechanism, text)
    beside = np.flatnonzero(head_layers > 0)
    if 0 < beside.size < tree.n_devices:
        text = (
            "has devices that step with the cloud, which noises their steps, beside others, such "
            f"as {tree.names[-1][beside[0]]}, that do not (algorithm: {name}); use mechanism: "
            "upload"
        )
        yield InputError("privacy.mechanism", privacy.mechanism, text)


def of_threat(run: Request) -> Wrong:
    """Nobody is distrusted who is trusted with what it reads; somebody is protected."""
    name, threat, network = run.config.algorithm, run.config.threat, run.network
    named, tree, (cloud, *servers) = set(threat.distrusted), network.tree, network.trust
    # The default names whoever of both is not trusted; so do both together of servers.
    all_servers = bool(servers) and all(layer.all() for layer in servers)
    trusted = {"cloud": bool(cloud[0]), "servers": all_servers and "cloud" not in named}
    for kind in sorted(named):
        if run.plan.private and named != set(ThreatConfig().distrusted) and trusted.get(kind):
            text = (
                f"can't be bound where it is trusted with what it reads (algorithm: {name}); leave "
                "it out, or use an algorithm and topology.trust that do not trust it"
            )
            yield InputError("threat.distrusted", kind, text)
    if threat.colluding >= tree.n_devices:
        text = (
            f"leaves nobody to protect; valid: 0 to {tree.n_devices - 1}, one less than there are "
            "devices"
        )
        yield InputError("threat.colluding", threat.colluding, text)


def _holds_out(run: Request) -> bool:
    partition = run.config.partition
    return partition.held_out_by == "devices" and partition.validation_fraction > 0


# fmt: off
FEATURES = (
    Feature("privacy.calibration: paper (Prop. 1)",
        lambda run: run.plan.private and run.privacy.calibration == "paper",
        (a.NOT_BY_CHANCE, a.PLAIN_MEANS), "calibration: accountant"),
    Feature("algorithm: {algorithm}, whose local rule is anchored at the model received,",
        lambda run: run.plan.rules.local.anchored, (a.PULL_TO_RECEIVED,)),
    Feature("privacy.unit: device, where a device without data stays where it is,",
        lambda run: noised_later(run) and run.privacy.unit == "device", (a.PULL_TO_RECEIVED,)),
    Feature("algorithm: {algorithm}, whose own local rule comes before all noise,",
        lambda run: noised_later(run) and run.privacy.unit != "device" and not has_plain_steps(run),
        (a.NO_PULL,), "privacy.mechanism: gradient"),
    Feature("algorithm: {algorithm}, which has a server rule of its own,",
        lambda run: run.plan.rules.server != server_rule_of(run.training.server), (a.AVERAGE,)),
    Feature("privacy.mechanism", always, values=of_noise),
    Feature("threat", always, values=of_threat),
    Feature("partition.held_out_by: devices", _holds_out,
        (a.PRIVATE, a.WHOLE_MODELS, a.OF_RECORDS, a.KNOWN_MODEL, a.CALIBRATED, a.SINGLE_MESSAGES,
         a.FIXED_SERVERS, a.NOT_BY_CHANCE, a.PLAIN_MEANS, a.OF_CLASSES), "cloud",
        "partition.held_out_by"),
    Feature("partition.scheme", lambda run: run.config.partition.scheme in BY_LABEL,
        (a.OF_CLASSES,), "column, iid or quantity", "partition.scheme"),
    Feature("training.metrics", lambda run: bool(run.training.metrics), (a.HELD_BY_CLOUD,), "[]",
        "training.metrics"),
)
# fmt: on


def features_of_runs() -> tuple[Feature, ...]:
    """The core's, and those that rooms bring."""
    of_rooms = (feature for features in brought("features") for feature in features)
    return (*FEATURES, *of_rooms)


def check_config(config: Config, pipelines: frozenset[str] = OF_EXPERIMENTS) -> Plan:
    """The algorithm's plan, once nothing is wrong that can be found without looking at data.

    Raises:
        InputError: naming the key, its value and what would be valid.
    """
    mechanism = get_mechanism(config.privacy.mechanism)
    mechanism.check(config.privacy)
    plan = build_plan(config)
    request = Request(config, plan, pipelines)
    check_model_name(config.model.name)
    check_loss_name(config.model.loss)
    for key in ("partition.scheme", "dataset.name"):
        name = request.value(key)
        if name is not None and own_code.is_own(name):
            own_code.load(key, name)
    own_code.GIVEN["metrics"](config.training.metrics)
    refuse_idle(request)
    refuse(features_of_runs(), request)
    # Who chooses step sizes round by round checks them as it does.
    if plan.schedule.proximal and told(a.KNOWN_ROUNDS).holds(request):
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
    if told(a.KNOWN_ROUNDS).holds(Request(config, plan)):
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
