"""Card, summary, ledger and table of zones of random networks tell one story."""

import re
from collections import defaultdict
from dataclasses import replace
from math import isinf

import numpy as np
import pytest
from tests.builders import experiment_of

from m2fdp.chance.joining import ByChance
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.sight import observers
from m2fdp.reporting.cards import privacy_card, subject_of
from m2fdp.zones.super_nodes import ByTurns

# Of the ledger, who reads at least what the observer of a row of zones_table reads.
KINDS = {
    "super-node": ("servers",),
    "elected super-node": ("super_nodes",),
    "cloud": ("cloud",),
    "listener between super-node and cloud": ("uplinks", "cloud"),
    "listener between device and super-node": ("uplinks",),
    "devices of the zone": ("siblings",),
    "devices elsewhere": ("far_devices", "cousins"),
    "public": ("public",),
}
COLLUDING = ("colluders",)
# Who is trusted has a line of its own.
TRUSTED = "trusted_servers"
# Messages of heads: below a cloud that is not trusted the ledger reads them as they are, and where
# no device noises its own, it counts all their noise.
OF_HEADS = {
    ("super-node", "the device's message", "devices add noise"),
    ("listener between device and super-node", "the device's message", "devices add noise"),
    ("cloud", "the zone's message", "super-nodes add noise"),
}


# Devices join by chance: with `unit: record`, and beside one that noises its own and may collude.
BY_CHANCE = (120, 228)


def networks():
    """Forty and two, and 300 in `make test-full`."""
    for number in range(300):
        kept = number < 40 or number in BY_CHANCE
        yield pytest.param(number, marks=[pytest.mark.full] * (not kept))


def drawn(number):
    """An experiment that is not refused."""
    for attempt in range(200):
        try:
            experiment = experiment_of(changes(np.random.default_rng([32, number, attempt])))
            experiment.calibrate()
        except InputError:
            continue
        return experiment
    raise AssertionError("all are refused")


def changes(rng):
    def one_of(*values):
        return values[rng.integers(len(values))]

    mixed, tree = ("hdp_mixed", "hdp_mixed"), [int(rng.integers(1, 5)), int(rng.integers(2, 6))]
    if rng.random() < 0.15:
        tree = one_of([6], [2, 2, 2], [2, 1, 3])
    result = {
        "algorithm": one_of("ldp", "hdp", "cdp", "m2fdp", *mixed),
        "seed": int(rng.integers(100)),
        "topology.fanouts": tree,
        "topology.trust.ratios": [one_of(0.0, 0.5, 1.0) for _ in tree[1:]],
        "topology.weights": one_of("uniform", "uniform", "samples"),
        "topology.super_nodes.kind": one_of("fixed", "fixed", "fixed", "elected"),
        "zones.device_noise": one_of(0.0, 0.4, 0.5, 1.0),
        "zones.server_noise": one_of(0.0, 0.4, 0.6),
        "zones.cloud_noise": one_of(False, True),
        "zones.both_layers": one_of(False, True),
        "zones.device_noise_of": one_of("zones", "devices"),
        "partition.scheme": one_of("iid", "dirichlet"),
        "training.rounds": one_of(1, 3, 20),
        "training.local_steps": one_of(1, 1, 2),
        "training.local_aggregation": None,
        "training.batch_size": one_of(None, 8.0),
        "privacy.mechanism": one_of("upload", "upload", "gradient"),
        "privacy.unit": one_of("device", "device", "record"),
        "threat.colluding": one_of(0, 0, 0, 1, 2),
    }
    if rng.random() < 0.5:
        multiplier = one_of(0.8, 1.2, 3.0)
        result |= {"privacy.calibration": "multiplier", "privacy.noise_multiplier": multiplier}
    if rng.random() < 0.4:
        result["training.participation"] = one_of(0.05, 0.3, 0.7)
        result["training.estimator"] = one_of("mean", "fixed")
    elif rng.random() < 0.3:
        result["training.participants"] = int(rng.integers(1, 4))
    if rng.random() < 0.4:
        result["secure_aggregation.layers"] = one_of([1], [2], [1, 2])
        result["secure_aggregation.decode"] = one_of("parent", "cloud")
        result["secure_aggregation.noise"] = one_of("separate", "shared")
    if rng.random() < 0.3:
        others = ["siblings", "far_devices", "public"]
        result["threat.distrusted"] = ["servers", "cloud", *others[: rng.integers(4)]]
    return result


@pytest.mark.parametrize("number", list(networks()))
def test_all_that_is_said_of_a_network_agrees(number):
    experiment = drawn(number)
    check_who_is_bound(experiment)
    check_zones(experiment)


def check_who_is_bound(experiment):
    """Whoever is named has a line that binds them, and is not trusted."""
    promised, ledger = experiment.summary(), experiment.ledger()
    spent = {kind: float(value) for kind, value in promised["epsilon_by_observer"].items()}
    lines = ledger.groupby("kind")["epsilon"].max()
    assert spent == pytest.approx(lines.to_dict(), rel=1e-9)
    bound = ledger[ledger["distrusted"]]
    assert promised["distrusted"] == sorted(set(bound["kind"]))
    assert float(promised["epsilon_verified"]) == pytest.approx(bound["epsilon"].max(), rel=1e-9)
    cloud, *servers = experiment.plan.network.trust
    trusted = {"cloud"} if cloud[0] else set()
    trusted |= {"servers"} if cloud[0] and all(map(np.all, servers)) else set()
    assert not trusted & set(promised["distrusted"])
    card = privacy_card(subject_of(experiment), promised, None, ledger, "kedro run")
    text = card.markdown()
    (named,) = re.findall(r"those whom it protects against \((.*?)\)", text)
    assert named == " and ".join(observers()[kind] for kind in promised["distrusted"])
    yes = set(re.findall(r"^\| ([^|]*) \| yes \| ", text, re.MULTILINE))
    assert yes == {observers().get(kind, kind) for kind in promised["distrusted"]}


def check_zones(experiment):
    """No row of the table is above its line of the ledger, and none is below the public's.

    Offices apart: the ledger counts the rounds that a super-node serves, the table every one.
    """
    table, calibrated = experiment.zones_table(), experiment.calibrate()
    mechanism, network = calibrated.mechanism, experiment.run_plan.networks[0]
    if table.empty:
        return
    epsilons = defaultdict(dict)
    ledger = mechanism.ledger
    for line in ledger.lines:
        if isinstance(line.account, ByTurns):
            line = replace(line, account=ByTurns(line.account.otherwise))
        epsilon = ledger.epsilon(line, calibrated.affordable_rounds)
        for device in line.position.members:
            of_kind = epsilons[line.kind]
            of_kind[device] = max(epsilon, of_kind.get(device, 0.0))
    steps = experiment.config.privacy.mechanism == "gradient"
    drawn = mechanism.noise.heads if steps else mechanism.noise.messages
    abouts = np.array(
        ["nobody adds noise", "devices add noise", "super-nodes add noise", "both add noise"]
    )[(drawn[2] > 0) + 2 * (drawn[1] > 0)[network.tree.parents[1]]]
    # Who never joins releases nothing; the table counts whoever may join in every round.
    counted = ledger.lines[0].account
    joins = np.ones(len(abouts), bool)
    if isinstance(counted, ByChance):
        joins = counted.attendance.joins.any(axis=0)
    of_public = table[table["observer"] == "public"].set_index("about")
    public, told = of_public["noise_over_shift"], of_public["rounds_known"]
    for row in table.to_dict("records"):
        kinds = KINDS.get(row["observer"], COLLUDING)
        members = np.flatnonzero((abouts == row["about"]) & joins)
        if not len(members):
            continue
        trusts = row["observer"] != "elected super-node" and any(
            kind in ("servers", "cloud", "colluders") for kind in kinds
        )
        of_kinds = [
            epsilons[kind][device]
            for kind in (*kinds, *[TRUSTED] * trusts)
            for device in members
            if device in epsilons[kind]
        ]
        if of_kinds:
            assert row["epsilon"] <= max(of_kinds) * (1 + 1e-6), row
        of_head = (row["observer"], row["sees"], row["about"]) in OF_HEADS
        of_head &= row["observer"] != "cloud" or not drawn[2].any()
        if of_head and not network.trust[0][0]:
            theirs = max(epsilons[kinds[0]][device] for device in members)
            assert row["epsilon"] == pytest.approx(theirs, rel=1e-6), row
        # Listeners on masked links get no broadcast; a device that never joins has no noise. An
        # observer that is never told counts on the quietest of all rounds, not of the device's own.
        alike = row["rounds_known"] == told[row["about"]]
        if alike and "listener" not in row["observer"] and not isinf(row["noise_over_shift"]):
            assert row["noise_over_shift"] <= public[row["about"]] * (1 + 1e-9), row
