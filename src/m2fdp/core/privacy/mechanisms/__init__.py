"""What a mechanism is: which step it clips, who draws how much noise when, and what that shows.

One object a mechanism, one file an object. Nobody else asks for its name, but for a capability.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from m2fdp.core import own_code
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.errors import BLOCK, InputError, among
from m2fdp.core.privacy.premises import Premises, weights_up_to
from m2fdp.core.privacy.releases import Laws, Release
from m2fdp.core.rooms import Catalogue
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network, heads_of, no_noise
from m2fdp.core.topology.tree import Tree


@dataclass(frozen=True)
class Clipping:
    """What bounds one local step: the norms that something is clipped to, None = it is not.

    Attributes:
        divide_by: the size that divides the clipped sum. `drawn` is the minibatch's (J eq. 6);
            `expected` is public and the same for neighbours.
        record_norm: that of each record's gradient.
        batch_norm: that of the minibatch gradient.
        update_norm: that of a device's update between two synchronisations, in units of eta.
        model_norm: that of a device's whole model, before it is sent.
        by_layer: whether each of a model's n layers is clipped, to the norm / sqrt(n).
    """

    divide_by: Literal["drawn", "expected"]
    record_norm: float | None = None
    batch_norm: float | None = None
    update_norm: float | None = None
    model_norm: float | None = None
    by_layer: bool = False

    @property
    def of_models(self) -> bool:
        """Whether a whole model is clipped, and noised in the model's own unit."""
        return self.model_norm is not None


@dataclass(frozen=True, eq=False)
class LockStep:
    """Which devices step together, as one learner.

    Attributes:
        nodes: int64 (G, 2), the (layer, index) of each group's node: the devices' head, or the
            reader of the sum of heads that share their noise.
        group_of: int64 (N_L,).
        weights: float64 (N_L,), the product of rho on the path from each device to that node.
    """

    nodes: np.ndarray
    group_of: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class ClientNoise:
    """Deviations (N_L,) of devices that split their model below an untrusted server, 0 for others:
    of the client's gradient at every local step, over eta, and of every record's activations."""

    gradients: np.ndarray
    activations: np.ndarray


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise standard deviations.

    Attributes:
        steps: float64 (G,), added by each lock-step group at every local step, if all take part.
        heads: what each head of a group adds of that, float64 (N_l,) for layer l = 0…L.
        messages: added by each node to its message to its parent, and by the cloud to its broadcast
            at a round's end, float64 (N_l,) for layer l = 0…L.
        broadcasts: added by servers to broadcasts after local aggregations, (N_l,), l = 0…L-1.
        local_messages: `messages` that travel for a local aggregation; None = the same.
        unit: what deviations are counted in: the step size eta, or the model's own.
        clients: that of devices that noise what they send of a model; None = nobody does.
    """

    steps: np.ndarray
    heads: tuple[np.ndarray, ...]
    messages: tuple[np.ndarray, ...]
    broadcasts: tuple[np.ndarray, ...]
    local_messages: tuple[np.ndarray, ...] | None = None
    unit: Literal["step", "model"] = "step"
    clients: ClientNoise | None = None

    @property
    def _by_name(self) -> dict[str, tuple[np.ndarray, ...]]:
        clients = self.clients
        return {
            "steps": (self.steps,),
            "heads": self.heads,
            "messages": self.messages,
            "broadcasts": self.broadcasts,
            "local_messages": self.local_messages or (),
            # Version 0.20 had one more noise. Digests of checkpoints keep its place.
            "": (np.array([]),),
            "clients": (clients.gradients, clients.activations) if clients else (),
        }

    @property
    def every(self) -> tuple[np.ndarray, ...]:
        """All of these numbers."""
        return tuple(array for arrays in self._by_name.values() for array in arrays)

    @property
    def credited(self) -> frozenset[str]:
        """The names of noises that are not all 0: the ledger counts on somebody who draws them."""
        drawn = {name for name, arrays in self._by_name.items() if any(map(np.any, arrays))}
        return frozenset(drawn - {"heads"})

    @property
    def in_steps(self) -> bool:
        """Whether local steps are noised, and not messages."""
        return bool(self.credited & {"steps", "clients"})

    def sent(self, top: int) -> tuple[np.ndarray, ...]:
        """What is added to messages when models travel up to a layer, by layer."""
        return self.messages if top == 0 else self.local_messages or self.messages

    def covers(self, tree: Tree, top: int) -> np.ndarray:
        """Bool (N_top,): a broadcast after a local aggregation follows from noised models alone."""
        sent = self.sent(top)
        noised = sent[tree.depth] > 0
        for layer in range(tree.depth - 1, top - 1, -1):
            noised = np.bincount(tree.parents[layer], ~noised, minlength=tree.n_nodes(layer)) == 0
            if layer > top:
                noised |= sent[layer] > 0
        return noised | (self.broadcasts[top] > 0)

    def scale(self, eta: float) -> float:
        """What a deviation of 1 is in a model, at step size eta."""
        return eta if self.unit == "step" else 1.0


@dataclass(frozen=True, eq=False)
class Protection:
    """A mechanism whose noise is decided, and whether nodes clip and noise at all (`private`)."""

    clipping: Clipping
    lock_step: LockStep
    noise: Noise
    private: bool


@runtime_checkable
class Mechanism(Protocol):
    """A way to make training private. Who derives from it says what differs from the defaults.

    Attributes:
        name: what configurations call it.
        noises_every_step: whether noise enters at every local step. Devices below a head then step
            together, and two runs never drift apart.
    """

    name: str
    noises_every_step: bool

    def check(
        self,
        privacy: PrivacyConfig,
        network: Network | None = None,
        plans: Sequence[RoundPlan] = (),
    ) -> None:
        """Raise an `InputError` for what is not defined, or not proven, for this mechanism. There
        is no network yet, or nothing is private, where `network` is None."""

    def clipping(self, privacy: PrivacyConfig) -> Clipping:
        """What bounds one local step."""

    def units(self, premises: Premises) -> np.ndarray:
        """How far shift 1 of each device's laws moves its head's message, over eta: (N_L,)."""

    def paper_noise(self, premises: Premises) -> list[np.ndarray]:
        """The papers' noise: deviations, for layer l = 0…L, float64 (N_l,); an `InputError` where
        they have none for this mechanism."""
        text = f"calibration: paper is not defined for mechanism: {self.name}; use accountant"
        raise InputError("privacy", BLOCK, text)

    def in_parts(
        self, premises: Premises, protecting: np.ndarray, distrusted: frozenset[str]
    ) -> list[np.ndarray]:
        """Deviations, for layer l = 0…L, in the proportions that a calibration keeps: each node's
        part of its full noise.

        A head's full noise protects the most exposed record below it from somebody who sees its
        every release. Any other node's stands in the same ratio to what a record moves its message
        by. Above the head that is the head's noise times the weight of its message in the node's;
        below, over the weight of the node's in the head's. Noise at every step has no message below
        a head. The largest over all heads on paths through the node counts.

        Args:
            protecting: float64 (N_L,), the noise of its head that protects each device's records.
            distrusted: the kinds of observers to protect from.
        """
        network, heads = premises.network, premises.heads
        tree = network.tree
        result = no_noise(tree)
        for head_layer in np.unique(heads[:, 0]):
            members = heads[:, 0] == head_layer
            its_heads, full = heads[members, 1], np.zeros(tree.n_nodes(head_layer))
            np.maximum.at(full, its_heads, protecting[members])
            np.maximum(result[head_layer], full, out=result[head_layer])
            for layer, parts in enumerate(network.noise):
                if layer == head_layer or (layer > head_layer and self.noises_every_step):
                    continue
                nodes = tree.ancestors[layer][members]
                if layer < head_layer:
                    sensitivity = network.shares(head_layer, layer)[its_heads]
                else:
                    sensitivity = 1.0 / network.shares(layer, head_layer)[nodes]
                wanted = full[its_heads] * sensitivity * (parts[nodes] > 0)
                np.maximum.at(result[layer], nodes, wanted)
        return [part * whole for part, whole in zip(network.noise, result, strict=True)]

    def noise(
        self, premises: Premises, lock_step: LockStep, deviations: Sequence[np.ndarray]
    ) -> Noise:
        """Where and when nodes draw noise of given deviations, for layer l = 0…L (N_l,)."""

    def laws(self, premises: Premises) -> Laws:
        """How far a record moves what its head releases, in rounds like these."""

    def releases(
        self, premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray, laws: Laws
    ) -> list[Release]:
        """The lines of the ledger, position by position. For noise and units see `build_ledger`."""

    def assumptions(self, privacy: PrivacyConfig) -> list[str]:
        """What epsilon rests on, besides what it rests on under any mechanism."""
        return []


MECHANISMS: Catalogue[Mechanism] = Catalogue(
    "mechanisms",
    {
        "gradient": "m2fdp.core.privacy.mechanisms.gradient:GRADIENT",
        "upload": "m2fdp.core.privacy.mechanisms.upload:UPLOAD",
    },
)


def get_mechanism(name: str) -> Mechanism:
    """The mechanism of that name, or the user's own of a name `package.module:NAME`."""
    if own_code.is_own(name):
        return own_code.load("privacy.mechanism", name, Mechanism)
    if name not in MECHANISMS:
        valid = among(name, [*MECHANISMS, own_code.FORM])
        raise InputError("privacy.mechanism", name, f"is unknown; valid are {valid}")
    return MECHANISMS[name]


NOT_REPLACED = (
    "adjacency: replace_one is proven for mechanism: gradient with unit: record only; "
    "use add_remove"
)


def refuse_if(*cases: tuple[bool, str]) -> None:
    """Raise the first case that applies of what the block `privacy` can't be."""
    for wrong, message in cases:
        if wrong:
            raise InputError("privacy", BLOCK, message)


def lock_step_of(mechanism: Mechanism, network: Network, plans: Sequence[RoundPlan]) -> LockStep:
    """Which devices step together under a mechanism, in rounds like these."""
    return step_together(network, plans) if mechanism.noises_every_step else step_alone(network)


def step_together(network: Network, plans: Sequence[RoundPlan] = ()) -> LockStep:
    """Every head and all devices below it. Heads that share their noise step with the reader of
    their sum and all devices below it: none of them may act on a part of the noise.

    Where each step of the rounds ends in the sum and nobody falls silent, heads have no time to
    act, and are learners of their own.
    """
    tree, sums = network.tree, network.sums
    of_device = heads_of(network)
    for layer in sorted(sums.layers, reverse=True) if sums.shared else ():
        tops = {top for plan in set(plans) for top in plan.layers}
        end_above = all(top is not None and top < layer for top in tops)
        if plans and not sums.dropout and end_above:
            continue
        top = sums.reader_layer(layer)
        reader = tree.ancestors[top]
        together = np.isin(reader, reader[of_device[:, 0] == layer])
        of_device[together] = np.stack([np.full_like(reader, top), reader], axis=1)[together]
    nodes, group_of = np.unique(of_device, axis=0, return_inverse=True)
    return LockStep(nodes, group_of, weights_up_to(network, nodes[group_of, 0]))


def step_alone(network: Network) -> LockStep:
    """Every device by itself."""
    tree = network.tree
    devices = np.arange(tree.n_devices)
    nodes = np.stack([np.full_like(devices, tree.depth), devices], axis=1)
    return LockStep(nodes, devices, np.ones(tree.n_devices))


def silence(network: Network, lock_step: LockStep) -> Noise:
    """No noise anywhere."""
    nothing = no_noise(network.tree)
    return Noise(np.zeros(len(lock_step.nodes)), nothing, nothing, nothing[:-1])
