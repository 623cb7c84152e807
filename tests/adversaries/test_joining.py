"""What the engine's own rounds show of devices that join by chance, against the ledger's lines."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.adversaries.copies import shown_by
from tests.builders import premises_of, process_of
from tests.convergence.settings import network_of
from torch import nn

from m2fdp.adversaries.heard import heard_by
from m2fdp.adversaries.membership import Rule, epsilon_bound
from m2fdp.chance.joining import joined_unseen, of_those
from m2fdp.core.engine.minibatches import Shards, draw_participants
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.accounting import epsilon, subsampled
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.streams import seeded
from m2fdp.core.topology.network import Participation
from m2fdp.zones.offices import Offices, in_office

ZONES, RATE, DELTA, ALPHA = 40_000, 0.25, 0.01, 0.005


def pulled():
    """A model of one number that records of label 1 pull down, by far more than clipping lets them;
    others leave it alone."""
    layer = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(layer.weight)

    def loss(scores, labels):
        return 100.0 * labels * scores.sum(-1)

    return Model("pulled", nn.Sequential(nn.Flatten(), layer), loss, linear=True)


def one_round(mechanism_name, weaker=1.0, elected=False, beside=0, zones=ZONES):
    """Zones of one device each, which has a record that pulls as far as clipping lets it, or none,
    beside so many others that pull as far: what the cloud is sent of each, who has the record, who
    joined, and the ledger. The record is all that the device has, or one of many."""
    by_chance = Participation(RATE, np.ones(zones))
    network = network_of([zones, 1], [1.0])
    network = replace(network, participation=by_chance, members_serve=elected)
    plans = Schedule(1, 2, {}, 0.5, "constant").round_plans()
    multiplier = {"calibration": "multiplier", "noise_multiplier": 1.0, "delta": DELTA}
    unit = {"mechanism": mechanism_name, "unit": "record" if beside else "device"}
    mechanism = build_mechanism(premises_of(network, plans, multiplier | unit, sizes=1 + beside))
    noise = replace(
        mechanism.noise,
        steps=mechanism.noise.steps / weaker,
        messages=tuple(scale / weaker for scale in mechanism.noise.messages),
    )
    has_data = np.arange(zones) % 2 == 1
    features = torch.ones(zones * (1 + beside), 1, 1, 1, dtype=torch.float64)
    pulls = np.concatenate([has_data[:, None], np.ones((zones, beside), bool)], axis=1)
    labels = torch.as_tensor(pulls.flatten(), dtype=torch.int64)
    shards = Shards(features, labels, np.full(zones, 1 + beside), np.ones(zones))
    randomness = seeded(3, b"joining")
    mechanism = replace(mechanism, noise=noise)
    process = process_of(network, mechanism, pulled(), shards, randomness, chunk_size=8192)
    sent = []

    def tap(direction, layer, models):
        if layer == 1:
            sent.append(models[:, 0].clone().numpy())

    heard_by(process, tap).round(process.start(), plans[0])
    joined = draw_participants(network, randomness.sampling, 1)
    # Of a zone of one device there is nobody else to elect.
    indices = np.arange(zones)
    leaders = np.where(joined, indices, -1)
    offices = Offices(indices, joined[None], leaders[None]) if elected else None
    ledger = of_those(mechanism.ledger, joined[None])
    return sent[0], has_data, joined, in_office(ledger, offices) if elected else ledger


def lower_bound(scores, has_data):
    """On epsilon, at 99 %: who is above 2.2 standard deviations of the others has data."""
    absent, present = scores[~has_data], scores[has_data]
    return epsilon_bound(Rule(True, 2.2 * absent.std()), absent, present, DELTA, ALPHA)


@pytest.mark.parametrize(("mechanism", "releases"), [("upload", 1), ("gradient", 2)])
def test_who_is_not_told_learns_less_than_who_is(mechanism, releases):
    """What the cloud is sent bounds its epsilon from below, within the ledger's, while it is not
    told who joined. The same messages show more to somebody who is, within what that many releases
    cost without the chance; and weaker noise shows more to the cloud. A false alarm has a
    probability of at most 0.5 % in each, over seeds."""
    sent, has_data, joined, ledger = one_round(mechanism)
    promised = ledger.by_kind(1)["cloud"]
    scores = -sent  # data pull down
    assert 0.3 < lower_bound(scores, has_data) <= promised
    told = epsilon(((subsampled(1.0), releases),), DELTA)
    assert promised < lower_bound(scores[joined], has_data[joined]) <= told
    broken, has_data, _, _ = one_round(mechanism, weaker=4.0, zones=ZONES // 10)
    assert shown_by(-broken[~has_data], -broken[has_data], DELTA, 1 - ALPHA) > promised


@pytest.mark.parametrize("mechanism", ["upload", "gradient"])
def test_an_election_shows_everybody_that_its_winner_has_joined(mechanism):
    """The cloud passes over zones that have elected nobody. What it is sent of the others tells it
    more than a ledger says that has a chance for every round, and no more than one that counts what
    a device serves. A false alarm has a probability of at most 1 %, over seeds."""
    sent, has_data, joined, ledger = one_round(mechanism, elected=True)
    above = Rule(True, 2.2 * sent[~has_data].std())
    scores = np.where(joined, -sent, -np.inf)
    shown = epsilon_bound(above, scores[~has_data], scores[has_data], DELTA, ALPHA)
    *_, by_chance = one_round(mechanism)
    assert by_chance.by_kind(1)["cloud"] < shown <= ledger.by_kind(1)["cloud"]


def test_the_other_records_of_a_device_show_when_it_joins():
    """So the chance hides none of its records: what the cloud is sent tells it more of one than a
    ledger says that credits the chance, as one of whole devices does, and no more than one that
    counts the round. A false alarm has a probability of at most 1 %, over seeds."""
    sent, has_record, joined, ledger = one_round("gradient", beside=10)
    scores = -sent
    absent = scores[joined & ~has_record]
    above = Rule(True, absent.mean() + 2.2 * absent.std())
    shown = epsilon_bound(above, scores[~has_record], scores[has_record], DELTA, ALPHA)
    laws = ((subsampled(1.0), 2),)
    credited = joined_unseen(laws, RATE, "add_remove", "device")
    assert epsilon(credited, DELTA) < shown <= ledger.by_kind(1)["cloud"]
    assert ledger.by_kind(1)["cloud"] == pytest.approx(epsilon(laws, DELTA))
