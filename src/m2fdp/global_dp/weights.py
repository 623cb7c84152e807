"""`weights`, G's (Long et al.): whole models are clipped to C, and noised on the way up and down.

A device takes plain gradient steps, clips its model to norm C and adds noise to its message. An
edge server adds noise to its message and to its broadcasts, the cloud to its broadcasts. Where an
edge server is trusted, its devices add nothing: the server does. Noise is in the model's own unit,
for any step size. `m2fdp.global_dp.releases` says what each release is worth. The tree has two
tiers: G has no other.

G's rule (eqs 4.1 to 4.11), `calibration: paper`, assumes that one of m records moves a model by
2C/m. It moves one by 2C. Deviations come as float64 (N_l, 2), of a global and a local aggregation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum, log, sqrt

import numpy as np

from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.privacy.accounting import Composition
from m2fdp.core.privacy.mechanisms import (
    Clipping,
    LockStep,
    Mechanism,
    Noise,
    refuse_if,
    silence,
)
from m2fdp.core.privacy.positions import Position, positions
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import Laws, Release
from m2fdp.core.privacy.sight import KINDS, NOTHING
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.global_dp.releases import Ball, ModelLines, ModelNoise


@dataclass(frozen=True)
class Weights(Mechanism):
    """Noise about whole models."""

    name: str = "weights"
    noises_every_step: bool = False

    def check(
        self,
        privacy: PrivacyConfig,
        network: Network | None = None,
        plans: Sequence[RoundPlan] = (),
    ) -> None:
        refuse_if(
            (privacy.clip != "flat", "clip: per_layer is not defined for mechanism: weights"),
            (
                privacy.calibration == "multiplier" or privacy.noise_multiplier is not None,
                "calibration: multiplier is not defined for mechanism: weights; use accountant or "
                "paper",
            ),
        )
        if network is None:
            return
        refuse = partial(InputError, "privacy.mechanism", self.name)
        if network.tree.depth != 2:
            raise refuse(
                f"is for devices, edge servers and a cloud, not for a tree of {network.tree.depth} "
                "tiers below it; use topology.fanouts of two numbers"
            )
        if network.trust[0][0]:
            raise refuse("is for a cloud that is not trusted; use upload")
        chosen = network.participants is not None or network.participation is not None
        if chosen or network.sums.layers or network.members_serve:
            raise refuse(
                "is for all devices in every round, whose messages are read one by one by fixed "
                "servers; leave out training.participants, participation and estimator, "
                "secure_aggregation and elected super-nodes"
            )
        exposures(plans, privacy)

    def clipping(self, privacy: PrivacyConfig) -> Clipping:
        return Clipping("drawn", model_norm=privacy.clipping_norm)

    def units(self, premises: Premises) -> np.ndarray:
        """The diameter of the ball, with its weight at the head."""
        return 2 * premises.privacy.clipping_norm * premises.weights_to_heads

    def paper_noise(self, premises: Premises) -> list[np.ndarray]:
        """G's rule with its parts: what a node adds whose part is 1."""
        network, privacy = premises.network, premises.privacy
        t = exposures(premises.plans, privacy)
        c = sqrt(2 * log(1.25 / privacy.delta))
        at_edges, at_cloud = privacy.epsilon, privacy.epsilon_cloud or privacy.epsilon
        upload = 2 * privacy.clipping_norm / int(premises.sizes.min())  # G eq. 4.3
        at_edge = upload * float(network.weights[1].max())  # G eq. 4.9
        in_total = upload * float(network.shares(2, 0).max())
        local, total = c * t.uplinks * upload / at_edges, c * t.cloud_rounds * upload / at_cloud
        device = network.noise[2][:, None] * np.array([total, local])
        message = network.noise[1] * (c * t.edge_uplinks * at_edge / at_cloud)
        noise = [np.zeros((1, 2)), np.stack([message, np.zeros_like(message)], axis=1), device]
        for layer, column, target in (
            (1, 1, c * t.downlinks * at_edge / at_edges),
            (0, 0, c * t.cloud_downlinks * in_total / at_cloud),
        ):
            drawn = [of_layer[:, column] for of_layer in noise]
            arriving = mean_variances(network, drawn, _all(network), layer)[0]
            if privacy.downlink == "top_up":  # G eqs 4.10 and 4.11
                added = np.sqrt(np.maximum(target**2 - arriving, 0.0))
            else:
                added = np.full_like(arriving, target if privacy.downlink == "full" else 0.0)
            noise[layer][:, column] = network.noise[layer] * added
        return noise

    def in_parts(
        self, premises: Premises, protecting: np.ndarray, distrusted: frozenset[str]
    ) -> list[np.ndarray]:
        """Heads noise their messages, and trusted servers what they broadcast as much. Where nobody
        who reads messages is distrusted, servers and cloud noise broadcasts, and nobody else."""
        network, heads = premises.network, premises.head_layers
        tree = network.tree
        edges = tree.parents[1]
        noise = [np.zeros((tree.n_nodes(layer), 2)) for layer in range(3)]
        # Of what a device moves its edge server's mean by.
        in_mean = protecting * np.where(heads == 2, network.weights[1], 1.0)
        if all(KINDS[kind].up == NOTHING for kind in distrusted):
            np.maximum.at(noise[1][:, 1], edges, in_mean)
            noise[0][:, 0] = (in_mean * network.weights[0][edges]).max()
            return noise
        exposed = heads == 2
        noise[2][exposed] = protecting[exposed, None]
        for column in range(2):
            np.maximum.at(noise[1][:, column], edges[~exposed], in_mean[~exposed])
        return noise

    def noise(
        self, premises: Premises, lock_step: LockStep, deviations: Sequence[np.ndarray]
    ) -> Noise:
        total, local = of_aggregations(deviations)
        silent = silence(premises.network, lock_step)
        return replace(
            silent,
            messages=total,
            local_messages=(*silent.messages[:2], local[2]),
            broadcasts=(silent.broadcasts[0], local[1]),
            unit="model",
        )

    def laws(self, premises: Premises) -> Laws:
        """One release an aggregation."""

        def laws(position: Position, plan: RoundPlan) -> Composition:
            return _ball(position, premises.privacy).composition(plan)

        return laws

    def releases(
        self, premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray, laws: Laws
    ) -> list[Release]:
        result = []
        for position, models in _positions(premises, noise, units):
            ball = _ball(position, premises.privacy)
            result += ModelLines(premises, position, models, ball, laws).all()
        return result


def _positions(
    premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray
) -> Iterator[tuple[Position, ModelNoise]]:
    """Devices in equal positions that have the same noise about their models."""
    models = model_noises(premises.network, noise, premises.threat.colluding)
    total, _ = of_aggregations(noise)
    for position in positions(premises, total, units):
        classes: dict[ModelNoise, list[int]] = {}
        for device in position.members:
            classes.setdefault(models[device], []).append(device)
        for of_class, members in classes.items():
            yield replace(position, members=tuple(members)), of_class


def _ball(position: Position, privacy: PrivacyConfig) -> Ball:
    rate = 1.0 if privacy.unit == "device" else position.sampling_rate
    return Ball(rate, privacy.adjacency, 2 * privacy.clipping_norm, position.unit)


@dataclass(frozen=True)
class Exposures:
    """t_1…t_5 of G's rule, by the keys of `ExposuresConfig`."""

    uplinks: int
    downlinks: int
    cloud_rounds: int
    edge_uplinks: int
    cloud_downlinks: int


def exposures(plans: Sequence[RoundPlan], privacy: PrivacyConfig) -> Exposures:
    """How many messages are caught: as declared, or each of the schedule; an `InputError` where
    they are more than there are, or of one kind of uplinks."""
    local, rounds = sum(plan.layers.count(1) for plan in plans), len(plans)
    scheduled = Exposures(local + rounds, local, rounds, rounds, rounds)
    said = privacy.exposures.model_dump(exclude_none=True)
    for key, count in said.items():
        if not count <= (there := getattr(scheduled, key)):
            problem = f"is more than the schedule has, {there}; null means all of them"
            raise InputError(f"privacy.exposures.{key}", count, problem)
    result = replace(scheduled, **said)
    if result.cloud_rounds > result.uplinks:
        problem = (
            f"is more than the uplinks that are caught, {result.uplinks}, of which they are some"
        )
        raise InputError("privacy.exposures.cloud_rounds", result.cloud_rounds, problem)
    if privacy.exposures.uplinks is not None and result.uplinks - result.cloud_rounds > local:
        raise InputError(
            "privacy.exposures.uplinks",
            result.uplinks,
            f"leaves {result.uplinks - result.cloud_rounds} beside those of global aggregations "
            f"(cloud_rounds: {result.cloud_rounds}), and the schedule has {local} others",
        )
    return result


def of_aggregations(noise: Sequence[np.ndarray]) -> tuple[tuple[np.ndarray, ...], ...]:
    """Deviations (N_l,) by layer at a global and at a local aggregation, from (N_l, 2) by layer, or
    (N_l,), the same at both."""
    columns = [of_layer.reshape(len(of_layer), -1) for of_layer in noise]
    return tuple(
        tuple(of_layer[:, at % of_layer.shape[1]] for of_layer in columns) for at in (0, 1)
    )


def model_noises(network: Network, noise: Sequence[np.ndarray], colluding: int) -> list[ModelNoise]:
    """What noise there is about every device's model, device by device.

    Colluding siblings know a part of it. What is left for them is summed up anew: a difference's
    rounding would pass for noise where nothing is left.
    """
    tree = network.tree
    edges, trusted = tree.parents[1], network.trust[1]
    devices = np.arange(tree.n_devices)
    p, q = network.weights[1], network.weights[0]
    total, local = of_aggregations(noise)
    means = [mean_variances(network, drawn, _all(network), 1)[0] for drawn in (local, total)]
    in_mean = [(p * drawn[2]) ** 2 for drawn in (local, total)]
    added = (local[1] ** 2, total[1] ** 2)
    of_edges = q**2 * (means[1] + added[1])
    cloud = float(total[0][0] ** 2)
    in_cloud = q[edges] ** 2 * in_mean[1]

    def pair(values: Sequence[np.ndarray], at: int) -> tuple[float, float]:
        return float(values[0][at]), float(values[1][at])

    def but_edge(edge: int) -> float:
        return fsum(np.delete(of_edges, edge)) + cloud

    def mean_but(count: int, device: int, siblings: np.ndarray) -> tuple[float, float]:
        in_local, in_total = (
            float(drawn[device]) + fsum(np.sort(drawn[siblings])[::-1][count:]) for drawn in in_mean
        )
        return in_local, in_total

    def but_far(of_edge: np.ndarray) -> float:
        far = int(np.where(of_edge, -1.0, in_cloud).argmax())
        edge = edges[far]
        others = fsum(in_cloud[(edges == edge) & (devices != far)])
        return but_edge(edge) + others + float(q[edge] ** 2 * added[1][edge])

    result = []
    for device, edge in enumerate(edges.tolist()):
        of_edge = edges == edge
        siblings = np.flatnonzero(of_edge & (devices != device))
        result.append(
            ModelNoise(
                share=float(p[device]),
                edge_share=float(q[edge]),
                own=(float(local[2][device]), float(total[2][device])),
                added=pair(added, edge),
                mean=pair(means, edge),
                mean_but_one=mean_but(1, device, siblings) if siblings.size else None,
                mean_but_coalition=mean_but(colluding + 1, device, siblings),
                cloud=cloud,
                total=fsum(of_edges) + cloud,
                total_but_edge=but_edge(edge),
                total_but_far=None if of_edge.all() else but_far(of_edge),
                total_but_servers=None if trusted.all() else fsum(of_edges[trusted]) + cloud,
            )
        )
    return result


def _all(network: Network) -> np.ndarray:
    return np.ones(network.tree.n_devices)


WEIGHTS = Weights()


def _plan(given: Given) -> Plan:
    *_, devices = noise_plan(given.tree, given.trust)
    servers = [np.ones(given.tree.n_nodes(layer)) for layer in range(given.tree.depth)]
    network = Network(given.tree, given.trust, (*servers, devices))
    return Plan(network, given.schedule, private=True)


GLOBAL_DP = Algorithm(
    "global_dp", "Global DP (G)", "method", _plan, mechanisms=frozenset({"weights"})
)


def drowned(assembly: Assembly) -> list[str]:
    """A line where the noise of a message is longer than a clipped model."""
    mechanism = assembly.calibration.mechanism
    norm = mechanism.clipping.model_norm
    if norm is None:
        return []
    of_message = max(float(of_layer.max()) for of_layer in mechanism.noise.messages)
    length = of_message * assembly.model.n_parameters**0.5
    if length <= norm:
        return []
    return [
        f"the noise of one message is {length:.3g} long, and no clipped model is longer than "
        f"{norm:g} (privacy.clipping_norm): what is trained may be noise alone"
    ]
