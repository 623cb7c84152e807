"""Zones: Table I of H against the ledger's one rule, and that rule against linear algebra."""

from dataclasses import replace
from itertools import combinations
from math import inf, sqrt

import numpy as np
import pytest
from tests.builders import experiment_of

from m2fdp.core.privacy.accounting import epsilon, least_noise, subsampled
from m2fdp.core.topology.network import SecureSums
from m2fdp.zones.table import COLUMNS
from m2fdp.zones.views import Releases, Zones, views, zone_epsilons

DELTA = 1e-5
S = M = 10
ONCE = Releases(((subsampled(1.0), 1),), ((subsampled(1.0), 1),))
OFF, IN_ZONES, EVERYWHERE = (SecureSums(frozenset(layers)) for layers in ((), (2,), (1, 2)))


def alike(sizes, devices, super_nodes, cloud):
    """Zones of so many devices on line each, with uniform weights, whose adders take so many times
    what one device moves their message by at most."""
    numbers = np.asarray(sizes)
    zone_of = np.repeat(np.arange(len(numbers)), numbers)
    s, n = len(numbers), len(zone_of)
    return Zones(
        zone_of,
        1.0 / numbers[zone_of],
        np.full(s, 1.0 / s),
        np.ones(n),
        np.broadcast_to(np.asarray(devices, dtype=np.float64), n),
        np.broadcast_to(np.asarray(super_nodes, dtype=np.float64), s) / numbers,
        cloud / (s * numbers.min()),
        np.ones(n),
    )


def case(name, z=1.0):
    """H's cases with s = m = 10 and halves; C7 with four zones of each kind."""
    devices, super_nodes = np.zeros((S, M)), np.zeros(S)
    first = {"C1": S, "C3": 5, "C3, both": S, "C7": 4}.get(name, 0)
    devices[:first] = z
    if name == "C5":
        devices[:, :5] = z
    others = {"C2": (0, S), "C3": (5, S), "C3, both": (0, S), "C6": (0, 5), "C7": (4, 8)}
    super_nodes[slice(*others.get(name, (0, 0)))] = z
    cloud = z * (name in {"C4", "C5", "C6", "C7"})
    return alike([M] * S, devices.ravel(), super_nodes, cloud)


def found(zones, sums, observer, releases=ONCE):
    zones = replace(zones, sums=sums)
    rows = zone_epsilons(zones, [releases], DELTA).set_index("observer").loc[[observer]]
    return dict(zip(rows["about"], rows["epsilon"], strict=True))


DEVICES, SERVERS, NOBODY, BOTH = (
    f"{who} noise" for who in ("devices add", "super-nodes add", "nobody adds", "both add")
)
# V; epsilon(1) over its root and over it; what a reader of broadcasts, the cloud, a super-node and
# one below secure aggregation, and an elected one learn (specs of H's paper, Sec. 1.3).
TABLE = {
    "C1": (100, 0.438, 0.0438, 0.341, {DEVICES: 1.199}, {DEVICES: 4.377}, {DEVICES: 1.199}),
    "C2": (10, 1.384, 0.438, 1.199, {SERVERS: 4.377}, {SERVERS: inf}, {SERVERS: inf}),
    "C3": (
        *(55, 0.590, 0.0796, 0.472, {DEVICES: 1.199, SERVERS: 4.377}),
        *({DEVICES: 4.377, SERVERS: inf}, {DEVICES: 1.199, SERVERS: inf}),
    ),
    "C3, both": (110, 0.417, 0.0398, 0.323, {BOTH: 1.138}, {BOTH: 4.377}, {BOTH: 1.199}),
    "C4": (1, 4.377, 4.377, 4.377, {NOBODY: inf}, {NOBODY: inf}, {NOBODY: inf}),
    "C5": (
        *(51, 0.613, 0.0858, 0.492, {DEVICES: 1.760, NOBODY: 1.760}),
        *({DEVICES: 4.377, NOBODY: inf}, {DEVICES: 1.760, NOBODY: 1.760}),
    ),
    "C6": (
        *(6, 1.787, 0.730, 1.591, {SERVERS: 4.377, NOBODY: inf}),
        *({SERVERS: inf, NOBODY: inf}, {SERVERS: inf, NOBODY: inf}),
    ),
    "C7": (
        *(45, 0.653, 0.0973, 0.526, {DEVICES: 1.199, SERVERS: 4.377, NOBODY: inf}),
        {DEVICES: 4.377, SERVERS: inf, NOBODY: inf},
        {DEVICES: 1.199, SERVERS: inf, NOBODY: inf},
    ),
}


def close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=5e-3), name


@pytest.mark.parametrize("name", TABLE)
def test_what_table_1_should_say(name):
    v, by_root, by_v, public, cloud, super_node, below_sums = TABLE[name]
    zones = case(name)
    assert zones.case == name[:2]
    assert zones.adders(1.0) == pytest.approx(v)
    nominal = epsilon(ONCE.told, DELTA)
    assert (nominal / sqrt(v), nominal / v) == pytest.approx((by_root, by_v), rel=5e-3)
    close(found(zones, OFF, "public"), dict.fromkeys(cloud, public))
    close(found(zones, OFF, "cloud"), cloud)
    close(found(zones, IN_ZONES, "cloud"), cloud)  # sums below it are all the same to the cloud
    close(found(zones, OFF, "super-node"), super_node)
    close(found(zones, IN_ZONES, "super-node"), below_sums)
    # Secure aggregation leaves links nothing, and among super-nodes the sum only.
    close(found(zones, IN_ZONES, "listener between device and super-node"), dict.fromkeys(cloud, 0))
    summed = found(zones, EVERYWHERE, "cloud")
    close(summed, dict.fromkeys(cloud, inf if name == "C4" else summed[next(iter(cloud))]))
    without_cloud = zones.adders(1.0) - (zones.cloud > 0)
    if without_cloud > 0.5:
        told = epsilon(((subsampled(1.0, 1 / sqrt(without_cloud)), 1),), DELTA)
        close(summed, dict.fromkeys(cloud, told))


def test_zones_of_unequal_sizes_share_the_broadcast_s_noise_unequally():
    """Five zones of 2 and five of 18: z D sqrt(sum of 1/D^2), so 1.75 and 0.158; 1.199 if equal."""
    zones = alike([2, 18] * 5, 0.0, 1.0, 0.0)
    columns = ["epsilon", "least_epsilon"]
    rows = zone_epsilons(zones, [ONCE], DELTA).set_index("observer")[columns]
    assert rows.loc["public"].tolist() == pytest.approx([1.75, 0.158], rel=5e-3)
    assert rows.loc["cloud", "epsilon"] == rows.loc["cloud", "least_epsilon"]
    equal = alike([10] * 10, 0.0, 1.0, 0.0)
    assert found(equal, OFF, "public")[SERVERS] == pytest.approx(1.199, rel=5e-3)
    assert zones.adders(1.0) == equal.adders(1.0) == pytest.approx(10)


@pytest.mark.parametrize(("colluding", "expected"), [(1, 1.06), (3, 1.22), (5, 1.46)])
def test_colluding_super_nodes_tell_their_parts_of_a_shared_noise(colluding, expected):
    whole = least_noise(ONCE.told, 1.0, DELTA)
    zones = case("C2", whole / sqrt(10))
    zones = replace(zones, colluding=colluding)
    assert found(zones, EVERYWHERE, "cloud")[SERVERS] == pytest.approx(1.0, rel=5e-3)
    observer = f"cloud with {colluding} super-nodes of other zones"
    assert found(zones, EVERYWHERE, observer)[SERVERS] == pytest.approx(expected, rel=1e-2)
    # Their own zone's members are at the mercy of the super-node.
    own = f"super-node with {colluding} devices of the zone"
    assert found(zones, EVERYWHERE, own)[SERVERS] == inf


class Forms:
    """Messages of a round as linear forms: column 0 how far the record of `owner` moves them, then
    sources."""

    def __init__(self, zones, owner, present):
        n, s = len(zones.zone_of), len(zones.zone_weights)
        self.n, self.size = n, 1 + n + s + 1
        self.messages = np.zeros((n, self.size))
        self.messages[owner, 0] = zones.moves[owner]
        self.messages[np.arange(n), 1 + np.arange(n)] = zones.devices
        self.messages[~present] = 0
        self.sums = np.zeros((s, self.size))
        np.add.at(self.sums, zones.zone_of, zones.device_weights[:, None] * self.messages)
        self.zones = self.sums.copy()
        self.zones[np.arange(s), 1 + n + np.arange(s)] += zones.super_nodes
        self.sum = zones.zone_weights @ self.zones
        self.broadcast = self.sum.copy()
        self.broadcast[-1] = zones.cloud

    def shift(self, forms, known=()):
        """Of the one Gaussian that tells as much, to who knows some of the sources."""
        forms = np.array(forms, dtype=float).reshape(-1, self.size)
        loadings = forms[:, 1:].copy()
        loadings[:, list(known)] = 0
        values, vectors = np.linalg.eigh(loadings @ loadings.T)
        along = vectors.T @ forms[:, 0]
        free = values < 1e-9
        if np.abs(along[free]).max(initial=0.0) > 1e-9:
            return inf
        return sqrt(float((along[~free] ** 2 / values[~free]).sum()))


def by_algebra(zones, owner, present):
    """The largest shift of each observer, who sees everything that it is sent in a round."""
    its = Forms(zones, owner, present)
    n, zone = its.n, zones.zone_of[owner]
    members = [j for j in np.flatnonzero(zones.zone_of == zone) if j != owner]
    others = np.flatnonzero(zones.zone_of != zone)
    cloud_s = its.size - 2
    summed = 2 in zones.sums.layers
    zone_sums, sum_of_devices = (summed and zones.sums.decode == by for by in ("parent", "cloud"))

    def at_super_node(known):
        if sum_of_devices:  # words, and what the cloud broadcasts
            return [its.broadcast], [*known, n + zone]
        seen = [its.sums[zone]] if zone_sums else its.messages[zones.zone_of == zone]
        return [*seen, its.zones[zone], its.broadcast], [*known, n + zone]

    summed = 1 in zones.sums.layers or sum_of_devices
    of_cloud = [its.sum] if summed else list(its.zones)
    found = {
        "cloud": its.shift([*of_cloud, its.broadcast], [cloud_s]),
        "public": its.shift([its.broadcast]),
        "super-node": its.shift(*at_super_node([])),
    }
    if members:
        found["elected super-node"] = max(its.shift(*at_super_node([j])) for j in members)
        found["devices of the zone"] = max(its.shift([its.broadcast], [j]) for j in members)
    if zones.colluding and members:
        together = combinations(members, min(zones.colluding, len(members)))
        who = f"super-node with {zones.colluding} devices of the zone"
        found[who] = max(its.shift(*at_super_node(known)) for known in together)

    def drawn_elsewhere(device):
        return [device, n + zones.zone_of[device]] if zones.elected else [device]

    if len(others):
        far = (its.shift([its.broadcast], drawn_elsewhere(j)) for j in others)
        found["devices elsewhere"] = max(far)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_nobody_learns_more_than_the_lowest_message_tells(seed):
    """In the round that tells most, of those that the device is in, or of all where the observer
    does not know which these are."""
    rng = np.random.default_rng([13, seed])
    sizes = rng.integers(1, 4, rng.integers(1, 4))
    zone_of = np.repeat(np.arange(len(sizes)), sizes)
    n, s = len(zone_of), len(sizes)
    weights = rng.random(n) + 0.2
    zones = Zones(
        zone_of,
        weights / np.bincount(zone_of, weights)[zone_of],
        np.full(s, 1.0 / s),
        rng.choice([0.5, 1.0], n),
        rng.choice([0.0, 0.5, 2.0], n),
        rng.choice([0.0, 0.5, 2.0], s),
        float(rng.choice([0.0, 0.3])),
        np.ones(n),
        elected=bool(rng.random() < 0.5),
    )
    rounds = np.ones((1, n), dtype=bool)
    if rng.random() < 0.5:
        rounds = rng.random((4, n)) < 0.6
        zones = replace(zones, attendance=(rounds, zones.in_zone))
    if rng.random() < 0.3:
        sums = SecureSums(frozenset({2}), "cloud")
    else:
        sums = SecureSums(frozenset(layer for layer in (2, 1) if rng.random() < 0.5))
    zones = replace(zones, sums=sums, colluding=int(rng.integers(3)))
    ours = {view.observer: view for view in views(zones)}
    for owner in range(n):
        with_it = rounds | (np.arange(n) == owner)
        exact = [by_algebra(zones, owner, present) for present in with_it]
        for observer in exact[0]:
            view = ours[observer]
            counted = rounds[:, owner] | (not view.told[owner])
            shift = max((exact[r][observer] for r in np.flatnonzero(counted)), default=0.0)
            variance = max(view.variance[owner], 0.0)
            moved = view.weights[owner] * zones.moves[owner]
            line = moved / sqrt(variance) if variance > 1e-15 else inf
            assert shift == pytest.approx(line, rel=1e-6), observer


RUN = {
    "privacy.mechanism": "upload",
    "privacy.unit": "device",
    "privacy.calibration": "multiplier",
    "privacy.noise_multiplier": 1.0,
    "training.local_aggregation": None,
}


# Who has a row of the table and lines of the ledger.
KINDS_OF = {"cloud": "cloud", "public": "public", "devices elsewhere": "far_devices"}


def told_by(experiment):
    """The zones' table by observer, and the ledger's epsilons by kind."""
    epsilons = experiment.ledger().groupby("kind")["epsilon"].max()
    return experiment.zones_table().set_index("observer"), epsilons


def table_of(**changes):
    once = {"algorithm": "hdp_mixed", "topology.fanouts": [S, M], "training.rounds": 1}
    return experiment_of(RUN, once, changes).zones_table()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("C1", {"algorithm": "ldp"}),
        ("C2", {"algorithm": "hdp"}),
        ("C4", {"algorithm": "cdp"}),
        ("C7", {"zones.device_noise": 0.4, "zones.server_noise": 0.4, "zones.cloud_noise": True}),
    ],
)
@pytest.mark.parametrize("mechanism", ["upload", "gradient"])
def test_a_run_s_table_is_of_the_noise_that_it_adds(name, changes, mechanism):
    if mechanism == "gradient" and name != "C7":  # which is refused
        changes = changes | {"privacy.mechanism": "gradient", "training.local_steps": 1}
    table = table_of(**changes)
    assert tuple(table.columns) == COLUMNS
    assert set(table["case"]) == {name}
    expected = zone_epsilons(case(name), [ONCE], DELTA).set_index(["observer", "about"])
    ours = table.set_index(["observer", "about"])
    assert set(ours.index) == set(expected.index)
    for column in ("devices", "noise_over_shift", "epsilon", "least_epsilon"):
        values = expected.loc[ours.index, column].astype(float)
        assert ours[column].astype(float).tolist() == pytest.approx(values.tolist(), rel=1e-6)
    v, by_root, by_v, *_ = TABLE[name]
    first = ours.iloc[0]
    assert first["v"] == pytest.approx(v)
    assert first["epsilon_nominal"] == pytest.approx(4.377, abs=5e-4)
    by_h = first["epsilon_by_h"], first["epsilon_by_h_with_sums"]
    assert by_h == pytest.approx((by_root, by_v), rel=5e-3)


def test_the_ledger_never_says_less_than_the_table():
    """It reads the mean of the head's parent, where the table has all zones' noise."""
    changes = {"training.rounds": 3, "training.local_steps": 3, "training.batch_size": None}
    changes |= {"topology.fanouts": [4, 3], "topology.trust.ratios": [0.5]}
    for unit in ("record", "device"):
        kept = {key: RUN[key] for key in ("privacy.mechanism", "training.local_aggregation")}
        rows, ledger = told_by(experiment_of(kept, changes, {"privacy.unit": unit}))
        table = rows["epsilon"]
        for ours, kind in KINDS_OF.items():
            assert table[ours].max() <= ledger[kind] * (1 + 1e-6)
        # Trusted super-nodes see what the ledger does not ask of them; untrusted ones the same.
        finite = table["super-node"][np.isfinite(table["super-node"])]
        assert finite.max() == pytest.approx(ledger["servers"], rel=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "hfl"},
        {"topology.fanouts": [4], "algorithm": "ldp", "topology.trust.ratios": None},
        {"algorithm": "ldp", "training.local_aggregation": {1: 1}, "training.local_steps": 2},
        {"algorithm": "ldp", "privacy.mechanism": "gradient", "training.local_steps": 2},
    ],
)
def test_other_runs_have_no_rows(changes):
    table = table_of(**changes)
    assert tuple(table.columns) == COLUMNS and table.empty


def test_steps_that_the_cloud_noises_are_releases_of_everybody_s():
    steps = {"privacy.mechanism": "gradient", "training.local_steps": 4}
    public = table_of(algorithm="cdp", **steps).set_index("observer").loc["public"]
    four = epsilon(((subsampled(1.0), 4),), DELTA)
    assert public["epsilon"] == pytest.approx(four, rel=1e-6)
    assert public["epsilon_nominal"] == pytest.approx(four, rel=1e-6)


def chance_of(algorithm, **changes):
    """An experiment of 4 zones of 40 devices of which a tenth joins each of 20 rounds."""
    chance = {"training.rounds": 20, "training.participation": 0.1, "partition.scheme": "iid"}
    chance |= {"algorithm": algorithm, "topology.fanouts": [4, 40]}
    return experiment_of(RUN, chance, changes)


def joins_of(experiment):
    line, *_ = experiment.calibrate().mechanism.ledger.lines
    return line.account.attendance.joins


def test_noise_of_super_nodes_hides_who_joins():
    experiment = chance_of("hdp")
    most = int(joins_of(experiment).sum(axis=0).max())
    table, ledger = told_by(experiment)
    cloud = epsilon(((subsampled(0.1), 20),), DELTA)
    assert table.loc["cloud", "epsilon"] == pytest.approx(cloud, rel=1e-6)
    assert table.loc["cloud", "epsilon_nominal"] == pytest.approx(cloud, rel=1e-6)
    peers = epsilon(((subsampled(1.0, 1 / 2), most),), DELTA)
    assert table.loc["devices of the zone", "epsilon"] == pytest.approx(peers, rel=1e-6)
    known = {"super-node", "elected super-node", "devices of the zone"}
    known |= {"listener between device and super-node"}
    unknown = {*KINDS_OF, "listener between super-node and cloud"}
    told = dict.fromkeys(known, True) | dict.fromkeys(unknown, False)
    assert table["rounds_known"].to_dict() == told
    assert table["v"].iloc[0] == pytest.approx(4)
    for ours, kind in KINDS_OF.items():
        assert table.loc[ours, "epsilon"] <= ledger[kind] * (1 + 1e-6)


def test_noise_of_devices_counts_with_those_who_came():
    experiment = chance_of("ldp")
    attendance = joins_of(experiment)
    most = int(attendance.sum(axis=0).max())
    came = attendance.reshape(20, 4, 40).sum(axis=2)
    table, ledger = told_by(experiment)
    fewest = came[came > 0].min()
    cloud = epsilon(((subsampled(1.0, 1 / sqrt(fewest)), most),), DELTA)
    assert table.loc["cloud", "epsilon"] == pytest.approx(cloud, rel=1e-6)
    public = epsilon(((subsampled(1.0, 1 / sqrt(came.sum(axis=1).min())), most),), DELTA)
    assert table.loc["public", "epsilon"] == pytest.approx(public, rel=1e-6)
    assert table["rounds_known"].all()
    assert table["v"].iloc[0] == pytest.approx(16)  # as many as are expected
    assert table.loc["super-node", "epsilon"] == pytest.approx(ledger["servers"], rel=1e-6)
    assert table.loc["cloud", "epsilon"] <= ledger["cloud"] * (1 + 1e-6)


def test_who_joins_takes_back_what_came_with_it():
    """Few come, so that the quietest round has the owner's noise alone: nobody draws it."""
    changes = {"topology.fanouts": [3, 4], "privacy.noise_multiplier": 1.2, "training.rounds": 100}
    changes |= {"training.participation": 0.05, "training.estimator": "fixed"}
    table, ledger = told_by(chance_of("ldp", **changes))
    for ours, kind in (("devices of the zone", "siblings"), ("devices elsewhere", "far_devices")):
        assert table.loc[ours, "noise_over_shift"] == pytest.approx(1.2)
        assert table.loc[ours, "epsilon"] == pytest.approx(ledger[kind], rel=1e-6)


def test_where_no_chance_is_proven_rounds_are_counted_as_the_ledger_counts_them():
    """Two steps of sampled records in a round that is joined by chance."""
    steps = {"training.local_steps": 2, "training.batch_size": 4.0, "privacy.unit": "record"}
    steps |= {"privacy.mechanism": "gradient", "topology.fanouts": [3, 4]}
    table, ledger = told_by(chance_of("cdp", **steps))
    assert table.loc["public", "epsilon"] == pytest.approx(ledger["public"], rel=1e-6)


def test_who_never_joins_tells_nobody_who_knows():
    changes = {"topology.fanouts": [3, 3], "training.rounds": 1, "training.participation": 0.05}
    experiment = chance_of("ldp", **changes)
    assert not joins_of(experiment).any()
    assert not experiment.zones_table()["epsilon"].any()
    assert not experiment.ledger()["epsilon"].any()


def test_the_quietest_of_a_fixed_number_takes_back_its_own():
    """Two of a zone come: an elected super-node that reads their sum leaves the other's noise."""
    changes = {"topology.fanouts": [4, 3], "secure_aggregation.layers": [2], "training.rounds": 1}
    changes |= {"training.participants": 2, "training.participation": None}
    table = chance_of("ldp", **changes).zones_table().set_index("observer")["epsilon"]
    alone = epsilon(((subsampled(1.0), 1),), DELTA)
    of_two = epsilon(((subsampled(1.0, 1 / sqrt(2)), 1),), DELTA)
    assert table["super-node"] == pytest.approx(of_two, rel=1e-6)
    assert table["elected super-node"] == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("algorithm", ["ldp", "cdp"])
def test_who_reads_words_is_handed_the_broadcast(algorithm):
    changes = {"secure_aggregation.layers": [2], "secure_aggregation.decode": "cloud"}
    changes |= {"topology.fanouts": [3, 4], "training.participation": None}
    table, ledger = told_by(chance_of(algorithm, **changes))
    kind = "servers" if algorithm == "ldp" else "public"
    assert table.loc["super-node", "epsilon"] == pytest.approx(ledger[kind], rel=1e-6)
    assert table.loc["super-node", "sees"] == "uniformly random words, and broadcasts"
    elected = table.loc["elected super-node", "noise_over_shift"]
    assert elected == table.loc["devices of the zone", "noise_over_shift"]


def test_secure_aggregation_as_configured():
    sums = {"secure_aggregation.layers": [1, 2]}
    table = table_of(algorithm="hdp", **sums).set_index("observer")
    assert table.loc["cloud", "epsilon"] == pytest.approx(1.199, rel=5e-3)
    assert table.loc["listener between super-node and cloud", "epsilon"] == 0
    shared = {"secure_aggregation.layers": [1], "secure_aggregation.noise": "shared"}
    table = table_of(algorithm="hdp", **shared).set_index("observer")
    assert table.loc["cloud", "epsilon"] == pytest.approx(4.377, rel=5e-3)
    assert table.loc["cloud", "v"] == pytest.approx(1.0)
