"""The ledger of devices that join rounds by chance against brute force, for observers who are told
who joins: on any small network with noise anywhere, weights of any size, both estimators, and
lowest servers that are elected of those who join.

As in `tests.core.privacy.test_oracle` every model is a linear form of the device's update and of
every Gaussian that was drawn. What matters beside is that absent devices send nothing, noise
neither, and that a server's model is what it last handed down plus the weighed updates of those who
came.
"""

from dataclasses import replace
from math import sqrt

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.core.privacy.test_oracle import EVERYBODY, MOST_SOURCES, Oracle, elections

from m2fdp.chance.joining import of_those
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.privacy.calibration import moved_by_joining
from m2fdp.core.privacy.ledger import build_ledger
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import (
    Network,
    Participation,
    exposed_devices,
    heads_of,
    noise_plan,
)
from m2fdp.core.topology.trust import draw_trust
from m2fdp.zones.offices import in_office


class Joined(Oracle):
    """A run in which device `owner` has data or not, and joins the same rounds either way."""

    def __init__(self, network, noise, schedule, owner, attendance):
        self.tree, self.network, self.noise, self.owner = network.tree, network, noise, owner
        self.heads, self.drawn, self.seen = heads_of(network), 0, {(0, 0): []}
        self.final, self.in_round = np.zeros(1 + MOST_SOURCES), {}
        for self.round, present in enumerate(attendance):
            self.hand_down(0, self.final[None])
            for step in range(1, schedule.local_steps + 1):
                layer = schedule.aggregation_layer(step)
                if layer is not None:  # what moved since the last one is clipped as a whole
                    self.models[owner, 0] += present[owner]
                    self.hand_down(layer, self.gather(layer, present))
            self.final = self.handed[0][0].copy()

    def gather(self, top, present):
        weights, forms = self.network.among(present).weights, self.models
        for layer in range(self.tree.depth, top, -1):
            above = self.handed[layer - 1].copy()
            for node, parent in enumerate(self.tree.parents[layer - 1]):
                if layer == self.tree.depth and not present[node]:
                    continue
                message = forms[node]
                if self.noise[layer][node]:
                    own = self.source(self.noise[layer][node])
                    self.look(layer, node, own)
                    message = message + own
                self.look(layer - 1, parent, message)
                above[parent] += weights[layer - 1][node] * (
                    message - self.handed[layer - 1][parent]
                )
            forms = above
        if top == 0 and self.noise[0][0]:
            own = self.source(self.noise[0][0])
            self.look(0, 0, own)
            forms = forms + own
        return forms

    def hand_down(self, top, forms):
        if top == 0:
            self.handed = {}
        self.models = forms[self.tree.ancestors[top]].copy()
        for layer in range(top, self.tree.depth + 1):
            received = forms[self.tree.ancestors_of(layer, top)]
            if layer < self.tree.depth:
                self.handed[layer] = received
            for node, form in enumerate(received):
                if layer > 0:
                    self.look(layer, node, form)


@st.composite
def systems(draw):
    depth = draw(st.integers(1, 3))
    tree = tree_from_fanouts(draw(st.lists(st.integers(1, 3), min_size=depth, max_size=depth)))
    ratios = draw(st.lists(st.sampled_from([0, 0.5, 1]), min_size=depth - 1, max_size=depth - 1))
    trust = draw_trust(tree, ratios, draw(st.integers(0, 9)))

    def some(values, length):
        return np.array(draw(st.lists(st.sampled_from(values), min_size=length, max_size=length)))

    parts = noise_plan(tree, trust)
    if draw(st.booleans()):  # anybody may add noise, or leave it out
        parts = tuple(some([0.0, 1.0], len(part)) for part in parts)
    noise = [part * some([0.5, 1, 3], len(part)) for part in parts]
    rate, least = draw(st.sampled_from([(0.3, None), (0.7, None), (0.5, 0.4), (0.5, 3), (1.0, 2)]))
    participation = Participation(rate, some([0.2, 0.5, 1.0], tree.n_devices), least)
    network = Network(tree, trust, parts, participation=participation, elected=depth > 1)
    local = {layer: draw(st.integers(1, 2)) for layer in range(1, depth) if draw(st.booleans())}
    rounds = draw(st.integers(1, 3))
    schedule = Schedule(rounds, draw(st.integers(1, 3)), local, 1.0, "constant")
    attendance = some([False, True], rounds * tree.n_devices).reshape(rounds, -1)
    owner, elected = draw(st.integers(0, tree.n_devices - 1)), draw(st.integers(0, 2**32))
    return network, noise, schedule, owner, attendance, elected


@settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(systems())
def test_who_is_told_learns_no_more_than_the_line_says(system):
    network, noise, schedule, owner, attendance, elected = system
    heads = heads_of(network)[:, 0]
    assume(not exposed_devices(network).any())
    # What check_participation refuses: un-noised sums of such weights below a head.
    tops = [layer for layer in schedule.layers() if layer is not None]
    assume(not any(heads[heads < network.tree.depth].min(initial=9) <= layer for layer in tops))
    if network.chance is None:
        attendance = np.ones_like(attendance)
    privacy = PrivacyConfig(mechanism="upload", unit="device", epsilon=1, clipping_norm=1)
    ones, plans = np.ones(network.tree.n_devices), schedule.round_plans()
    ledger = build_ledger(
        Premises(network, np.ones(network.tree.n_devices), ones, plans, privacy, EVERYBODY),
        noise,
        moved_by_joining(network),
    )
    offices = elections(network, attendance, np.random.default_rng(elected))
    ledger = of_those(ledger, attendance)
    ledger = in_office(ledger, offices) if offices else ledger
    known = {}
    for line in ledger.lines:
        if owner in line.position.members:
            # The chance of joining apart: everybody is told here.
            told = replace(line, position=replace(line.position, unnoticed=False))
            laws = ledger.composition(told, len(plans))
            shift = sqrt(sum(count * law.largest**2 for law, count in laws))
            known[line.kind] = max(known.get(line.kind, 0.0), shift)
    run = Joined(network, noise, schedule, owner, attendance)
    leaders = None if offices is None else offices.leaders
    for kind, shift in run.by_kind(0, leaders).items():
        assert shift <= known[kind] * (1 + 1e-6), kind
