"""An attack on `downlink_noise` through the engine: the cloud adds up what broadcasts hid.

One untrusted server with 25 trusted ones below it, each with one device. The trusted servers noise
what they broadcast every four of 32 steps. The record pushes its device the same way in every
step, so that the pushes add up over all broadcasts. The other devices know what they had before
each broadcast: each walks back as much of the broadcast's noise as clipping lets it. So the mean
that reaches the cloud holds all of the record's pushes, and of the other servers' noise little
more than the last messages'.
"""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from tests.adversaries.copies import shown_by
from tests.builders import process_of
from torch import nn

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.accounting import least_noise, subsampled
from m2fdp.core.privacy.calibrated import CalibratedMechanism
from m2fdp.core.privacy.ledger import build_ledger
from m2fdp.core.privacy.mechanisms import Clipping, silence, step_alone
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.streams import seeded
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan

G, ETA, SIBLINGS, STEPS, EVERY = 1.0, 0.1, 25, 32, 4
DELTA = 1e-3
# What the ledger said while it credited the siblings' noise at every broadcast.
FORMER_EPSILON = 2.0
FORMER_SHIFT = 1 / least_noise(((subsampled(1.0), 1),), FORMER_EPSILON, DELTA)
# Over 2G: eight windows of shift 4, behind the noise of 25.
DEVIATION = sqrt(STEPS / EVERY) * EVERY / sqrt(SIBLINGS) / FORMER_SHIFT
ABSENT, PRESENT, WALK_BACK = range(3)


def network_of(copies):
    tree = tree_from_fanouts([copies, SIBLINGS, 1])
    trust = (np.array([False]), np.zeros(copies, bool), np.ones(copies * SIBLINGS, bool))
    return Network(tree, trust, noise_plan(tree, trust))


def cloud_shift_and_epsilon():
    """What the ledger says of the cloud: the shift over the noise, and epsilon."""
    network = network_of(1)
    privacy = PrivacyConfig(
        mechanism="upload", epsilon=2, delta=DELTA, clipping_norm=G, downlink_noise=True
    )
    noise = [np.zeros(1), np.zeros(1), np.full(SIBLINGS, DEVIATION), np.zeros(SIBLINGS)]
    ones = np.ones(SIBLINGS)
    plans = Schedule(1, STEPS, {2: EVERY}, ETA, "constant").round_plans()
    threat = ThreatConfig(distrusted=["cloud", "public", "far_devices"])
    ledger = build_ledger(
        Premises(network, np.ones(network.tree.n_devices), ones, plans, privacy, threat),
        noise,
        ones,
    )
    (line,) = [line for line in ledger.lines if line.kind == "cloud"]
    ((law, count),) = ledger.composition(line, 1)
    return sqrt(count) * law.largest, ledger.verified(1)


def received_by_the_cloud(copies):
    """What the cloud receives of each copy, and which of them hold the record."""
    network = network_of(copies)
    single = step_alone(network)
    still = silence(network, single)
    each = np.full(copies * SIBLINGS, DEVIATION * 2 * G)
    noise = replace(
        still,
        messages=(*still.messages[:2], each, still.messages[3]),
        broadcasts=(still.broadcasts[0], still.broadcasts[1], each),
    )
    present = np.arange(copies) % 2 == 1
    kinds = np.full((copies, SIBLINGS), WALK_BACK)
    kinds[:, 0] = np.where(present, PRESENT, ABSENT)

    def loss(scores, labels):
        (x,) = scores.T
        pushed = torch.where(labels == PRESENT, -x, x) * 10 * G
        return torch.where(labels == WALK_BACK, x.square() / (2 * ETA), pushed)

    layer = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    process = process_of(
        network,
        CalibratedMechanism(Clipping("drawn", batch_norm=G), single, noise, True, None),
        Model("attack", nn.Sequential(nn.Flatten(), layer), loss, linear=True),
        Shards(
            torch.ones(kinds.size, 1, 1, 1, dtype=torch.float64),
            torch.as_tensor(kinds.ravel()),
            np.ones(kinds.size, dtype=np.int64),
            np.ones(kinds.size),
        ),
        seeded(3, b"attack"),
    )
    seen = []

    def tap(direction, layer, models):
        if direction == "up" and layer == 1:
            seen.append(models[:, 0].numpy().copy())

    (plan,) = Schedule(1, STEPS, {2: EVERY}, ETA, "constant").round_plans()
    process.round(process.start(), plan, tap)
    (received,) = seen
    return received, present


def test_the_shift_that_the_cloud_sees_is_above_the_former_line_and_below_today_s():
    received, present = received_by_the_cloud(600)
    shift = (received[present].mean() - received[~present].mean()) / received[~present].std()
    known, _ = cloud_shift_and_epsilon()
    # The estimate's own deviation is about 0.1.
    assert 1.6 * FORMER_SHIFT < shift < known


@pytest.mark.full
def test_a_lower_bound_above_the_former_epsilon_stays_below_today_s():
    received, present = received_by_the_cloud(2400)
    lower = shown_by(received[~present], received[present], DELTA)
    _, known = cloud_shift_and_epsilon()
    assert FORMER_EPSILON < lower < known
