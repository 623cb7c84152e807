"""What secure aggregation asks of a network and of a run, and what shared noise shrinks to."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Feature
from m2fdp.core.experiment.request import Request
from m2fdp.core.privacy.mechanisms import lock_step_of
from m2fdp.core.topology.network import Network, SecureSums, heads_of, readers
from m2fdp.secure_aggregation.config import SecureAggregationConfig

_LAYERS = "secure_aggregation.layers"
_PROTOCOL = "secure_aggregation.protocol"


def surprises(config: Config, plan: Plan) -> list[str]:
    """A line where noise of its own is asked of every sender."""
    if not plan.private or not config.secure_aggregation.layers or plan.network.sums.shared:
        return []
    return [
        "secure_aggregation.noise = separate: every sender's noise is enough by itself, and sums "
        "only lower epsilon; shared meets the same target with less noise"
    ]


def _has_sums(run: Request) -> bool:
    return bool(run.config.secure_aggregation.layers)


def _has_masks(run: Request) -> bool:
    return _has_sums(run) and run.config.secure_aggregation.protocol == "masks"


def _of_sums(run: Request) -> Iterator[InputError]:
    """Sums that the cloud alone reads leave servers below it that step something to read."""
    sums, plan = run.config.secure_aggregation, run.plan
    if not _has_sums(run) or sums.decode != "cloud" or plan.schedule.local_steps == 1:
        return
    if not plan.private or not run.mechanism.noises_every_step:
        return
    layers, _ = lock_step_of(run.mechanism, plan.network, plan.schedule.round_plans()).nodes.T
    if ((layers > 0) & (layers < max(sums.layers))).any():
        text = (
            "leaves trusted servers, which step together with the devices below them, nothing that "
            "they can read; use parent, privacy.mechanism: upload, or one local step"
        )
        yield InputError("secure_aggregation.decode", sums.decode, text)


# fmt: off
FACTS = (
    replace(a.SINGLE_MESSAGES, key=_LAYERS, remedy="[]", holds=lambda run: not _has_sums(run)),
    replace(a.SUMS_OF_SERVERS, key=_LAYERS, remedy="layers of servers",
        holds=lambda run: run.network.tree.depth not in run.network.sums.layers,
        shown=lambda run: run.network.tree.depth),
    replace(a.NOBODY_SILENT, key="secure_aggregation.dropout", remedy="0",
        holds=lambda run: not _has_sums(run) or run.config.secure_aggregation.dropout == 0),
    replace(a.SUMS_IN_CLEAR, key=_PROTOCOL, remedy="ideal",
        holds=lambda run: not _has_masks(run)),
)
FEATURES = (
    Feature("secure_aggregation.protocol: masks, for updates of a bounded norm,", _has_masks,
        (a.PULL_TO_RECEIVED,)),
    Feature("secure_aggregation.protocol: masks", _has_masks, (a.PRIVATE, a.PLAIN_STEPS), "ideal",
        _PROTOCOL),
    Feature("secure_aggregation", _has_sums, values=_of_sums),
)
# fmt: on


def secure_sums(config: SecureAggregationConfig) -> SecureSums:
    """Which messages are read as sums, as configured."""
    layers, shared = frozenset(config.layers), config.noise == "shared"
    return SecureSums(layers, config.decode, shared, config.threshold, config.dropout)


def with_secure_sums(plan: Plan, config: Config) -> Plan:
    """The plan under the configured secure aggregation, its heads with their parts of shared noise;
    an `InputError` for layers that are none, or groups or thresholds that hide nothing."""
    if not config.secure_aggregation.layers:
        return plan
    sums, colluding = secure_sums(config.secure_aggregation), config.threat.colluding
    network, depth = replace(plan.network, sums=sums), plan.network.tree.depth
    for layer in sorted(sums.layers):
        if layer > depth:
            problem = f"is no layer of senders in this tree; valid: 1 to {depth}"
            raise InputError(_LAYERS, layer, problem)
    refuse = partial(InputError, "secure_aggregation.decode", "cloud")
    if sums.decode == "cloud" and len(sums.layers) > 1:
        several = f"not of the {len(sums.layers)} of {_LAYERS}"
        raise refuse(f"reads one sum of one layer, {several}")
    if sums.decode == "cloud" and plan.schedule.local_aggregation:
        raise refuse(
            f"leaves servers nothing that they can read, so nothing to aggregate at layer "
            f"{min(plan.schedule.local_aggregation)} (training.local_aggregation); use null there"
        )
    for layer in sorted(sums.layers):
        _check_groups(network, layer, colluding)
    if sums.shared and plan.private:
        network = _shared(network, colluding)
    return replace(plan, network=network)


def _check_groups(network: Network, layer: int, colluding: int) -> None:
    """Every sum has at least two terms, and a threshold that is a majority without colluders."""
    sums, sizes = network.sums, network.group_sizes(layer)
    thresholds, threshold = sums.least_members(sizes), sums.threshold
    said = threshold if threshold is not None else "null"
    halves = "is not above half of the {n} below {reader}: two halves could each be read"
    above = "must be above threat.colluding = {colluding} of the {n} below {reader}: here it is "
    for wrong, key, value, text in (
        (sizes < 2, "layers", layer, "adds up {n} message below {reader}, which hides nothing"),
        (2 * thresholds <= sizes, "threshold", threshold, halves),
        (thresholds > sizes, "threshold", threshold, "is more than the {n} below {reader}"),
        (thresholds <= colluding, "threshold", said, above + "{threshold}"),
    ):
        for node in np.flatnonzero(wrong).tolist():
            reader, n, t = _reader_name(network, layer, node), sizes[node], thresholds[node]
            problem = text.format(n=n, reader=reader, colluding=colluding, threshold=t)
            raise InputError(f"secure_aggregation.{key}", value, problem)


def _reader_name(network: Network, layer: int, node: int) -> str:
    sums, tree = network.sums, network.tree
    return tree.names[sums.reader_layer(layer)][readers(tree, sums, layer)[node]]


def _shared(network: Network, colluding: int) -> Network:
    """Each head adds 1/sqrt(n) of its noise where at least n honest heads are in every sum.

    In units of one full noise the sum holds 1 (H Sec. IV-A with specs of Bonawitz et al. 2017:
    t survivors, of whom colluders tell theirs). An elected super-node that reads the sum is one of
    those who add noise, and knows its own.
    """
    tree, sums, heads = network.tree, network.sums, heads_of(network)
    refuse = partial(InputError, "secure_aggregation.noise", "shared")
    noise = [of_layer.copy() for of_layer in network.noise]
    shares = False
    for layer in sorted(sums.layers):
        nodes = np.unique(heads[heads[:, 0] == layer, 1])
        nodes = nodes[noise[layer][nodes] > 0]
        if not nodes.size:
            continue
        shares = True
        of_node = readers(tree, sums, layer)
        sizes = network.group_sizes(layer)
        n_absent = sizes - sums.fewest(layer, sizes, colluding)
        # Where not all take part, those who do are as many heads as all the group's are alike.
        present = sizes / np.bincount(of_node)[of_node]
        adding = np.bincount(of_node[nodes], minlength=of_node.max() + 1)[of_node] * present
        by_member = sums.decode == "parent" and network.members_serve and layer == tree.depth
        certain = np.floor(adding + 1e-9) - n_absent - colluding - by_member
        for node in nodes[certain[nodes] < 1]:
            raise refuse(
                f"leaves no honest noise in a sum that {_reader_name(network, layer, node)} reads: "
                f"of {int(adding[node])} who add noise {int(n_absent[node])} may be missing and "
                f"{colluding} collude (threat.colluding)"
                + (", and the elected super-node reads it" if by_member else "")
            )
        noise[layer][nodes] /= np.sqrt(certain[nodes])
    if not shares:
        raise refuse(
            f"finds no noise to share: nobody at {_LAYERS} {sorted(sums.layers)} protects "
            "devices by adding some; use the layer of those who do, or separate"
        )
    return replace(network, noise=tuple(noise))
