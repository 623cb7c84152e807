"""Split models below a server that nobody trusts: noised activations and what follows from them.

For every record that it uses, a device that splits its model sends its server the activations
clip(z, C_z) + N(0, (zeta_z C_z)^2) with the label. It trains its own part of the model by the sum
of gradients clip(g, C_g) + N(0, (zeta_g C_g)^2). In one epoch a record is in one batch. Activations
are functions of the record and of the client's part, which follows from earlier noised sums. So,
given all earlier releases, two releases of an epoch depend on the record: its activations and its
batch's gradient. Together they are one Gaussian whose mean moves by

    s sqrt(1 / zeta_g^2 + 1 / zeta_z^2),    s = 1 (zero_out), 2 (replace_one)

standard deviations. Noise on activations alone is not enough: an un-noised gradient of the client
moves all other records' activations. Nothing is amplified by sampling, for the server sees which
records come. The server's own part follows from what it receives, and needs no noise.

Neighbours differ in a record's features. Labels are public, or drawn once a record by
randomised response, which costs label_epsilon once, for ever.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf, sqrt

import numpy as np

from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.privacy.accounting import Composition, ShiftLaw
from m2fdp.core.privacy.mechanisms import ClientNoise, LockStep, Noise
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import Account, Release
from m2fdp.core.privacy.sight import COLLUDING, KINDS, ON_LINKS, TO_TRUSTED, sent_by_head
from m2fdp.core.privacy.summary import Promised
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network, heads_of

LABELS = "labels"
_HOST = "who is sent activations, with their labels"
_CLEAR = "activations and labels in clear"
_BOTH = "noised activations, and what follows from every step's noised gradient"
_FOLLOWS = "what follows from noised activations and every step's noised gradient"


def activation_multiplier(gradients: float, share: float) -> float:
    """zeta_z that leaves the activations a share a of the squared shift: 1 / zeta_z^2 is
    a / (1 - a) of 1 / zeta_g^2."""
    return gradients * sqrt((1 - share) / share)


def exposed_splits(network: Network) -> np.ndarray:
    """bool (N_L,): the devices that split their model and noise themselves what they send."""
    if network.splits is None:
        return np.zeros(network.tree.n_devices, dtype=bool)
    return network.splits & (heads_of(network)[:, 0] == network.tree.depth)


def with_client_noise(
    premises: Premises, lock_step: LockStep, noise: Noise, units: np.ndarray
) -> Noise:
    """The noise with that of devices which split below a server that nobody trusts: of each part of
    their models, and so none of whole steps.

    Args:
        units: float64 (N_L,): what a record moves each device's gradient by, over eta.
    """
    network, privacy = premises.network, premises.privacy
    exposed = exposed_splits(network)
    if not exposed.any():
        return noise
    single = lock_step.nodes[:, 0] == network.tree.depth
    of_devices = np.zeros(network.tree.n_devices)
    of_devices[lock_step.nodes[single, 1]] = noise.steps[single]
    gradients = np.where(exposed, of_devices, 0.0)
    multipliers = activation_multiplier(1.0, privacy.activation_share) * gradients / units
    steps = noise.steps.copy()
    steps[single] = np.where(exposed[lock_step.nodes[single, 1]], 0.0, steps[single])
    clients = ClientNoise(gradients, multipliers * privacy.activation_clip)
    return replace(noise, steps=steps, clients=clients)


def lines_of_split(premises: Premises, lines: Sequence[Release]) -> list[Release]:
    """The mechanism's lines, position by position, where some devices split their model: what each
    observer then sees of these, and what becomes of labels that go to a server that nobody trusts.
    """
    privacy = premises.privacy
    # In units of what a record moves the client's gradient by.
    law = ShiftLaw((1 / sqrt(1 - privacy.activation_share),), (1.0,))

    def laws(position: Position, plan: RoundPlan) -> Composition:
        """Of activations and gradient together: one release an epoch, or a local step."""
        return ((law, len(plan.layers)),)

    result: list[Release] = []
    randomised = privacy.labels == "randomised"
    account = Account(spent=privacy.label_epsilon if randomised else 0.0)
    for line in lines:
        position, row = line.position, KINDS[line.kind]
        if position.splits and not position.is_device:
            words = {TO_TRUSTED: _CLEAR, ON_LINKS: f"{_CLEAR}, and clipped gradients"}
            line = replace(line, sees=words.get(row.up, line.sees))
        elif position.splits:
            if not result or result[-1].position is not position:
                sees = "randomised labels" if randomised else "labels in clear"
                rests = "drawn once a record" if randomised else "labels: public, not protected"
                noise = inf if randomised else 0.0
                labels = Release(position, LABELS, _HOST, sees, noise, rests, laws)
                result.append(replace(labels, account=account))
            reads = row.reads(sent_by_head(position)) and row.drew != COLLUDING
            sees = _BOTH if reads else _FOLLOWS
            rests = "as if every release were seen"
            line = replace(line, sees=sees, assumption=rests, laws=laws, account=account)
        result.append(line)
    return result


def randomised_response(
    labels: np.ndarray, n_classes: int, label_epsilon: float, stream: np.random.Generator
) -> np.ndarray:
    """Labels int64 (n,), each kept with chance e^eps / (e^eps + C - 1), else another at random; a
    record's draw depends on its place alone."""
    keep = exp(label_epsilon) / (exp(label_epsilon) + n_classes - 1)
    draws, others = stream.random(len(labels)), stream.integers(1, n_classes, size=len(labels))
    return np.where(draws < keep, labels, (labels + others) % n_classes)


def promised(assembly: Assembly) -> Promised:
    """How records come to who is sent their activations, and what becomes of their labels; nothing
    where no device sends any."""
    ledger, privacy = assembly.calibration.mechanism.ledger, assembly.config.privacy
    if not any(line.kind == LABELS for line in ledger.lines):
        return Promised()
    sentence = "neighbours differ in a record's features: its label is public (privacy.labels)"
    if privacy.labels != "public":
        sentence = (
            f"labels are drawn once a record and for ever: {privacy.label_epsilon:g} of epsilon is "
            "theirs, and another run on the same records draws, and spends, anew"
        )
    activations = {"clip": privacy.activation_clip, "share_of_budget": privacy.activation_share}
    entries = {
        "sampling": "poisson, seen by who is sent activations",
        "labels": privacy.labels,
        "activations": activations,
    }
    return Promised((sentence,), entries)
