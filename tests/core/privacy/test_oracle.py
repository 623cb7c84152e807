"""The ledger of `upload` against brute force, for noise placed anywhere in any small network.

Anywhere: by any number of nodes on a path, untrusted servers and the cloud among them, which may be
trusted, also above untrusted servers; with weights by sample count, and readers of sums, in which
some may be missing and of which some may collude; and lowest servers that are elected devices.

Every model is a linear form: how far the record moves it, and how much of every Gaussian that was
drawn it holds. What an observer can learn at most from a Gaussian vector with covariance S that is
moved by m is one Gaussian moved by sqrt(m' S^-1 m): exact, with no window, position or kin. The
record is used in every step, and every device that holds an un-noised trace of it drifts by the
most that clipping allows.

Then devices that join rounds by chance, for observers who are told who joins, with weights of any
size and both estimators: absent devices send nothing, noise neither, and a server's model is what
it last handed down plus the weighed updates of those who came.
"""

from dataclasses import replace
from itertools import combinations
from math import inf, sqrt

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from m2fdp.chance.joining import of_those
from m2fdp.chance.updates import among
from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.privacy.calibration import moved_by_joining
from m2fdp.core.privacy.ledger import build_ledger
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import (
    OPEN,
    Network,
    Participation,
    SecureSums,
    exposed_devices,
    heads_of,
    noise_plan,
    readers,
    sample_weights,
)
from m2fdp.core.topology.trust import draw_trust
from m2fdp.zones.offices import Offices, in_office

EVERYBODY = ThreatConfig(distrusted=["servers", "cloud", "siblings", "far_devices", "public"])
MOST_SOURCES = 400


class Oracle:
    """A run in which device `owner` holds the record; what everybody sees of it."""

    def __init__(self, network, noise, schedule, owner, missing):
        self.tree, self.network, self.noise = network.tree, network, noise
        self.owner, self.missing = owner, missing
        self.heads = heads_of(network)
        self.models = np.zeros((self.tree.n_devices, 1 + MOST_SOURCES))
        self.drawn, self.drawn_by = 0, {}
        self.tainted = set()
        self.seen = {}  # by (layer, node): the linear forms that this node has seen
        self.in_round = {}  # by (round, lowest server), what it has seen
        self.final = None
        for self.round in range(schedule.rounds):
            for step in range(1, schedule.local_steps + 1):
                self.tainted.add(owner)
                for device in self.tainted:
                    self.models[device, 0] += 1
                layer = schedule.aggregation_layer(step)
                if layer is not None:
                    self.aggregate(layer)

    def source(self, deviation):
        """A new Gaussian."""
        self.drawn += 1
        form = np.zeros(1 + MOST_SOURCES)
        form[self.drawn] = deviation
        return form

    def look(self, layer, node, form):
        self.seen.setdefault((layer, int(node)), []).append(form.copy())
        if layer == self.tree.depth - 1:
            self.in_round.setdefault((self.round, int(node)), []).append(form.copy())

    def aggregate(self, top):
        forms = list(self.models)
        tainted = [device in self.tainted for device in range(self.tree.n_devices)]
        sums, masked = self.network.sums, False
        for layer in range(self.tree.depth, top, -1):
            above = np.zeros((self.tree.n_nodes(layer - 1), 1 + MOST_SOURCES))
            touched = [False] * len(above)
            for node, parent in enumerate(self.tree.parents[layer - 1]):
                message, traces = forms[node], tainted[node]
                if self.noise[layer][node]:
                    own = self.source(self.noise[layer][node])
                    self.look(layer, node, own)
                    self.drawn_by.setdefault((layer, node), []).append(own)
                    message, traces = message + own, False
                if layer in sums.layers and self.missing[layer][node]:
                    continue
                masked |= layer in sums.layers and sums.decode == "cloud"
                if layer not in sums.layers and not masked:
                    self.look(layer - 1, parent, message)
                above[parent] += self.network.weights[layer - 1][node] * message
                touched[parent] |= traces
            if (layer in sums.layers and not masked) or (masked and layer == 1):
                for parent, form in enumerate(above):
                    self.look(layer - 1, parent, form)
            forms, tainted = above, touched
        if top == 0 and self.noise[0][0]:
            own = self.source(self.noise[0][0])
            self.look(0, 0, own)
            forms[0] = forms[0] + own
            tainted = [False]
        ancestors = self.tree.ancestors[top]
        for node in range(len(forms)):
            below = np.flatnonzero(ancestors == node)
            for device in below:
                self.models[device] = forms[node]
                self.tainted.discard(int(device))
                if tainted[node]:
                    self.tainted.add(int(device))
                for layer in range(max(top, 1), self.tree.depth + 1):
                    self.look(layer, self.tree.ancestors[layer][device], forms[node])
        if top == 0:
            self.final = forms[0].copy()

    def shift(self, forms):
        """Of the one Gaussian that tells as much as all of these."""
        if not forms:
            return 0.0
        matrix = np.unique(np.array(forms)[:, : 1 + self.drawn], axis=0)
        mean, loadings = matrix[:, 0], matrix[:, 1:]
        covariance = loadings @ loadings.T
        values, vectors = np.linalg.eigh(covariance)
        along = vectors.T @ mean
        free = values < 1e-9 * max(values.max(), 1.0)
        if np.abs(along[free]).max(initial=0.0) > 1e-6:
            return inf
        return sqrt(float((along[~free] ** 2 / values[~free]).sum()))

    def by_kind(self, colluding, leaders):
        """The largest shift of each kind of observer, with the ledger's names.

        Args:
            leaders: (T, zones), who is elected, if anybody is.
        """
        tree, trust = self.tree, self.network.trust
        found = {"public": self.shift([self.final])}
        if not trust[0][0]:
            found["cloud"] = self.shift(self.seen[0, 0])

        def note(kind, layer, node, more=()):
            views = [*self.seen[layer, int(node)], *more]
            found[kind] = max(found.get(kind, 0.0), self.shift(views))

        for layer in range(1, tree.depth):
            for node in np.flatnonzero(~trust[layer]):
                note("servers", layer, node)
        head_layer, head = self.heads[self.owner]
        for device in set(range(tree.n_devices)) - {self.owner}:
            if tree.parents[-1][device] == tree.parents[-1][self.owner]:
                kind = "siblings"
            elif tree.ancestors[head_layer][device] == head:
                kind = "cousins"
            else:
                kind = "far_devices"
            serves = [] if kind == "siblings" else self.in_office([device], leaders)
            note(kind, tree.depth, device, serves)
        if leaders is not None and "siblings" in found:
            found["super_nodes"] = self.peers(colluding + 1, leaders)
        return found | {"colluders": self.coalition(colluding)} if colluding else found

    def in_office(self, devices, leaders):
        """What some devices of one zone see as its lowest server, when they are elected."""
        if leaders is None:
            return []
        zone = int(self.tree.parents[-1][devices[0]])
        rounds = np.flatnonzero(np.isin(leaders[:, zone], devices)).tolist()
        return [form for round_ in rounds for form in self.in_round.get((round_, zone), [])]

    def peers(self, size, leaders):
        """Of any so many other devices of the zone, each of which is its lowest server by turns."""
        zones, device_layer = self.tree.parents[-1], self.tree.depth
        zone = zones[self.owner]
        others = [device for device in np.flatnonzero(zones == zone) if device != self.owner]
        largest = 0.0
        for some in combinations(others, min(size, len(others))):
            views = [form for one in some for form in self.seen.get((device_layer, int(one)), [])]
            largest = max(largest, self.shift(views + self.in_office(some, leaders)))
        return largest

    def coalition(self, colluding):
        """Of who reads the head's messages, and any so many of those that it reads with it."""
        tree, sums = self.tree, self.network.sums
        layer, head = self.heads[self.owner]
        top = sums.reader_layer(layer)
        of_node = tree.ancestors_of(layer, top)
        if self.network.trust[top][of_node[head]]:
            return 0.0
        others = [i for i in np.flatnonzero(of_node == of_node[head]) if i != head]
        views = self.seen.get((top, int(of_node[head])), [])
        largest = 0.0
        for some in combinations(others, min(colluding, len(others))):
            told = [form for node in some for form in self.drawn_by.get((layer, int(node)), [])]
            largest = max(largest, self.shift(views + told))
        return largest


@st.composite
def secure(draw, depth):
    """Readers of sums."""
    if draw(st.booleans()):
        layers, decode = {draw(st.integers(1, depth))}, "cloud"
    else:
        layers, decode = draw(st.sets(st.integers(1, depth), min_size=1)), "parent"
    return SecureSums(frozenset(layers), decode, dropout=draw(st.sampled_from([0.0, 0.1])))


def elections(network, present, drawn, colluding=0):
    """Anybody of each zone who is present, (T, N_L), serves in a round."""
    if not network.members_serve:
        return None
    zones = network.tree.parents[-1]
    leaders = np.full((len(present), zones.max() + 1), -1)
    for round_, here in enumerate(present):
        for zone in np.unique(zones[here]):
            leaders[round_, zone] = drawn.choice(np.flatnonzero((zones == zone) & here))
    return Offices(zones, present, leaders, colluding + 1)


def absent(network, owner, drawn, colluding):
    """By layer, who is missing in all sums: as many as may be, none of them above the owner."""
    tree, sums = network.tree, network.sums
    result = {}
    for layer in sums.layers:
        of_node, sizes = readers(tree, sums, layer), network.group_sizes(layer)
        allowed = sizes - sums.fewest(layer, sizes, colluding)
        missing = np.zeros(len(of_node), dtype=bool)
        for node in drawn.permutation(len(of_node)):
            gone = missing[of_node == of_node[node]].sum()
            if node != tree.ancestors[layer][owner] and gone < allowed[node]:
                missing[node] = True
        result[layer] = missing
    return result


def some(values, length):
    return st.lists(st.sampled_from(values), min_size=length, max_size=length).map(np.array)


@st.composite
def noisy_trees(draw, cloud=False):
    """A tree, who is trusted, and noise anywhere: parts and deviations, by layer."""
    depth = draw(st.integers(1, 3))
    tree = tree_from_fanouts(draw(some([1, 2, 3], depth)).tolist())
    trust = draw_trust(tree, draw(some([0, 0.5, 1], depth - 1)), draw(st.integers(0, 9)))
    if cloud and draw(st.booleans()):  # whoever else is trusted
        trust = (np.array([True]), *trust[1:])
    parts = noise_plan(tree, trust)
    if draw(st.booleans()):  # anybody may add noise, or leave it out
        parts = tuple(draw(some([0.0, 1.0], len(part))) for part in parts)
    return tree, trust, parts, [part * draw(some([0.5, 1, 3], len(part))) for part in parts]


@st.composite
def systems(draw):
    """A network with noise anywhere, a schedule, an owner, and whether broadcasts are noised."""
    tree, trust, parts, noise = draw(noisy_trees(cloud=True))
    depth, weighed = tree.depth, draw(st.booleans())
    rho = sample_weights(tree, draw(some([1, 2, 5], tree.n_devices))) if weighed else None
    sums = draw(secure(depth)) if draw(st.booleans()) else OPEN
    steps = draw(st.integers(1, 4))
    local = {layer: draw(st.integers(1, 3)) for layer in range(1, depth) if draw(st.booleans())}
    if sums.decode == "cloud":  # servers between can't read what they would aggregate
        local = {}
    schedule = Schedule(draw(st.integers(1, 2)), steps, local, 1.0, "constant")
    owner, missing = draw(st.integers(0, tree.n_devices - 1)), draw(st.integers(0, 2**32))
    network = Network(tree, trust, parts, rho=rho, sums=sums, members_serve=depth > 1)
    return network, noise, schedule, owner, missing, draw(st.integers(0, 2))


def check(run, ledger, offices, colluding, **position):
    """No observer learns more than the largest of its kind's lines about the owner, each read with
    its position changed."""
    known = {}
    for line in ledger.lines:
        if run.owner in line.position.members:
            read = replace(line, position=replace(line.position, **position))
            laws = ledger.composition(read, len(ledger.plans))
            shift = sqrt(sum(count * law.largest**2 for law, count in laws))
            known[line.kind] = max(known.get(line.kind, 0.0), shift)
    leaders = None if offices is None else offices.leaders
    for kind, shift in run.by_kind(colluding, leaders).items():
        assert shift <= known[kind] * (1 + 1e-6), kind


SEARCH = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.filter_too_much, HealthCheck.too_slow],
}


@settings(max_examples=1000, **SEARCH)
@given(systems())
def test_no_observer_learns_more_than_its_line_says(system):
    network, noise, schedule, owner, missing, colluding = system
    assume(not exposed_devices(network)[owner])
    privacy = PrivacyConfig(mechanism="upload", epsilon=1, delta=1e-5, clipping_norm=1)
    ones = np.ones(network.tree.n_devices)
    plans = schedule.round_plans()
    threat = EVERYBODY.model_copy(update={"colluding": colluding})
    ledger = build_ledger(Premises(network, ones, ones, plans, privacy, threat), noise, ones)
    everybody = np.ones((schedule.rounds, len(ones)), dtype=bool)
    offices = elections(network, everybody, np.random.default_rng(missing), colluding)
    ledger = in_office(ledger, offices) if offices else ledger
    missing = absent(network, owner, np.random.default_rng(missing), colluding=0)
    run = Oracle(network, noise, schedule, owner, missing)
    check(run, ledger, offices, colluding, members=(owner,))


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
        weights, forms = among(self.network, present).weights, self.models
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
def joined_systems(draw):
    tree, trust, parts, noise = draw(noisy_trees())
    depth = tree.depth
    rate, least = draw(st.sampled_from([(0.3, None), (0.7, None), (0.5, 0.4), (0.5, 3), (1.0, 2)]))
    participation = Participation(rate, draw(some([0.2, 0.5, 1.0], tree.n_devices)), least)
    network = Network(tree, trust, parts, participation=participation, members_serve=depth > 1)
    local = {layer: draw(st.integers(1, 2)) for layer in range(1, depth) if draw(st.booleans())}
    rounds = draw(st.integers(1, 3))
    schedule = Schedule(rounds, draw(st.integers(1, 3)), local, 1.0, "constant")
    attendance = draw(some([False, True], rounds * tree.n_devices)).reshape(rounds, -1)
    owner, elected = draw(st.integers(0, tree.n_devices - 1)), draw(st.integers(0, 2**32))
    return network, noise, schedule, owner, attendance, elected


@settings(max_examples=250, **SEARCH)
@given(joined_systems())
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
    premises = Premises(network, ones, ones, plans, privacy, EVERYBODY)
    ledger = build_ledger(premises, noise, moved_by_joining(network))
    offices = elections(network, attendance, np.random.default_rng(elected))
    ledger = of_those(ledger, attendance)
    ledger = in_office(ledger, offices) if offices else ledger
    run = Joined(network, noise, schedule, owner, attendance)
    # The chance of joining apart: everybody is told here.
    check(run, ledger, offices, 0, unnoticed=False)
