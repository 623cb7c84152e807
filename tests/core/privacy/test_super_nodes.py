"""What elected super-nodes learn: their rounds, their own noise, and who is refused."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from tests.builders import experiment_of

from m2fdp import load_config
from m2fdp.chance.joining import thinned
from m2fdp.core.algorithms import build_plan
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.accounting import epsilon, subsampled
from m2fdp.core.privacy.calibration import build_mechanisms
from m2fdp.core.privacy.ledger import ledger_table
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.summary import summary
from m2fdp.core.streams import KeyedStreams
from m2fdp.zones.offices import Offices, draw_offices, in_office

MECHANISMS = ["gradient", "upload"]
SUMS = {"secure_aggregation.layers": [2], "secure_aggregation.noise": "shared"}
PEERS = {"threat.distrusted": ["servers", "cloud", "super_nodes"]}
ELECTED = {"topology.super_nodes.kind": "elected", "topology.fanouts": [2, 4]}


def config_of(*changes, rounds=1, fanouts=(1, 10), **more):
    base = {
        "algorithm": "hfl_dp",
        "topology.fanouts": list(fanouts),
        "topology.super_nodes.kind": "elected",
        "training.rounds": rounds,
        "training.local_steps": 1,
        "training.local_aggregation": None,
        "privacy.epsilon": 1.0,
    }
    return load_config(base, *changes, more)


def mechanism_of(config, offices=None, drawn=True):
    """On shards of one size, all of which is used in every step."""
    plan = build_plan(config)
    network, plans = plan.network, plan.schedule.round_plans()
    n = network.tree.n_devices
    if offices is None and drawn:
        streams = KeyedStreams(config.seed)
        offices = draw_offices(network, streams, plans, config.threat.colluding + 1)
    premises = Premises(network, np.full(n, 100), np.ones(n), plans, config.privacy, config.threat)
    (mechanism,) = build_mechanisms(
        [premises], lambda ledger: in_office(ledger, offices) if offices else ledger
    )
    return mechanism


def served(leaders, n=4, present=None, coalition=1):
    """The offices of one zone of n devices that all take part, unless said otherwise."""
    leaders = np.array(leaders)[:, None]
    here = np.ones((len(leaders), n), dtype=bool) if present is None else np.array(present)
    return Offices(np.zeros(n, dtype=int), here.astype(bool), leaders, coalition)


def line_of(ledger, kind, device=0):
    (line,) = (x for x in ledger.lines if x.kind == kind and device in x.position.members)
    return line


def alone(line, device):
    """The line of one device of its position."""
    return replace(line, position=replace(line.position, members=(device,)))


@pytest.mark.parametrize("rounds", [1, 200])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_member_that_reads_the_sum_knows_its_own_share(mechanism, rounds):
    """10 shares protect at 1; 9 of them at 1.0593, whether it reads the sum or, as a sibling, the
    broadcast of it. One full noise is calibrated to 0.1 %."""
    config = config_of(SUMS, {"privacy.mechanism": mechanism}, rounds=rounds)
    by_kind = mechanism_of(config).ledger.by_kind(rounds)
    assert by_kind["servers"] == pytest.approx(1.0, rel=1e-3) and by_kind["servers"] <= 1
    assert by_kind["super_nodes"] == pytest.approx(1.0593, rel=1e-3)
    peers = config_of(SUMS, PEERS, {"privacy.mechanism": mechanism}, rounds=rounds)
    bound = mechanism_of(peers)
    assert bound.epsilon(rounds) == bound.ledger.by_kind(rounds)["super_nodes"]
    assert 0.998 < bound.epsilon(rounds) <= 1.0


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("colluding", [0, 1, 3])
def test_shares_leave_out_the_reader_and_those_who_tell_it(mechanism, colluding):
    """Of 10 nobody is missing without colluders, else all beyond the threshold of 7 may be."""
    z = {"privacy.calibration": "multiplier", "privacy.noise_multiplier": 2.0}
    config = config_of(SUMS, z, {"privacy.mechanism": mechanism, "threat.colluding": colluding})
    honest = 9 if colluding == 0 else 7 - colluding - 1
    assert build_plan(config).network.noise[-1] == pytest.approx(honest**-0.5)
    calibrated = mechanism_of(config)
    told = calibrated.ledger.by_kind(1)["super_nodes"]
    assert told == pytest.approx(epsilon(((subsampled(1.0, 0.5), 1),), 1e-5))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_without_sums_it_reads_messages_when_it_serves(mechanism):
    """Else the mean of 4, of whose equal noises it knows one: sqrt(3) times as much noise."""
    config = config_of({"privacy.mechanism": mechanism}, rounds=5, fanouts=(1, 4))
    ledger = mechanism_of(config, served([0, 0, 1, 0, 1])).ledger
    ((read, rounds),) = ledger.composition(line_of(ledger, "servers"), 5)
    assert rounds == 5
    # Devices of one position share a line, of the worst of them: 0 served the others three times.
    (serving, times), (not_serving, others) = ledger.composition(line_of(ledger, "super_nodes"), 5)
    assert (serving, times, others) == (read, 3, 2)
    assert serving.largest == pytest.approx(3**0.5 * not_serving.largest)
    for device, times in enumerate([2, 3, 3, 3]):
        (_, count), _ = ledger.composition(alone(line_of(ledger, "super_nodes"), device), 5)
        assert count == times


def test_who_adds_masked_vectors_reads_words_and_broadcasts():
    """However often it serves, it learns what its siblings do."""
    config = config_of(SUMS, {"secure_aggregation.decode": "cloud"}, rounds=3)
    ledger = mechanism_of(config).ledger
    line = line_of(ledger, "super_nodes")
    assert line.sees == "uniformly random words, and broadcasts"
    assert "computationally" in line.assumption
    assert ledger.by_kind(3)["super_nodes"] == ledger.by_kind(3)["siblings"] > 0


def test_rounds_are_those_of_the_worst_pair():
    """Sizes differ, so that every device has a position of its own."""
    changes = {"training.participants": 2, "training.local_steps": 1, "training.rounds": 12}
    changes |= {"algorithm": "hfl_dp", "partition.scheme": "quantity"}
    experiment = experiment_of(ELECTED, changes, {"topology.fanouts": [2, 3]})
    ledger = experiment.calibrate().mechanism.ledger
    offices, table = line_of(ledger, "super_nodes").account.offices, experiment.elections()
    table = table.set_index("device")
    for device in range(6):
        zone, line = device // 3, line_of(ledger, "super_nodes", device)
        worst = max(
            sum(offices.present[t, device] and offices.leaders[t, zone] == other for t in range(12))
            for other in range(3 * zone, 3 * zone + 3)
            if other != device
        )
        assert line.position.members == (device,)
        assert [alike.times for alike in ledger.released(line, 12)] == [worst, 12 - worst]
        assert table["under_one_other"].iloc[device] == worst
    lines = experiment.ledger().query("kind == 'super_nodes'")
    assert (lines["releases"] == 12).all()
    for text, most in zip(lines["assumption"], table["under_one_other"], strict=True):
        assert f"serving in {most} of 12 rounds, the most that any other did" in text
    most = table[["served", "under_one_other", "under_coalition"]].max()
    expected = {f"most_{name}": count for name, count in most.items()}
    assert experiment.summary()["elections"] == expected


def test_a_coalition_serves_in_the_rounds_of_all_its_members():
    config = config_of({"threat.colluding": 1}, rounds=6, fanouts=(1, 5))
    leaders = [0, 1, 2, 2, 3, 4]
    ledger = mechanism_of(config, served(leaders, n=5, coalition=2)).ledger
    assert [alike.times for alike in ledger.released(line_of(ledger, "super_nodes"), 6)] == [3, 3]
    assumption = ledger_table(ledger, 6).query("kind == 'super_nodes'").iloc[0]["assumption"]
    assert "1 others tell it what they draw" in assumption
    assert "serving in 3 of 6 rounds, the most that any 2 others did" in assumption


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_is_elected_has_joined_for_all_to_see(mechanism):
    """Whoever is never told who joins has the chance of it in other rounds alone."""
    changes = {"algorithm": "hdp", "training.participation": 0.25, "privacy.mechanism": mechanism}
    changes |= {"privacy.unit": "device", "privacy.calibration": "multiplier"}
    changes |= {"privacy.noise_multiplier": 2.0}
    config = config_of(changes, rounds=6, fanouts=(2, 4))
    leaders = np.full((6, 2), -1)
    leaders[:, 0] = [0, 0, 1, -1, 2, 0]
    offices = Offices(np.repeat([0, 1], 4), np.ones((6, 8), dtype=bool), leaders)
    mechanism, undrawn = mechanism_of(config, offices), mechanism_of(config, drawn=False).ledger
    ledger = mechanism.ledger
    for kind in ("cloud", "far_devices", "public"):
        line = line_of(ledger, kind)
        ((shown, times), (hidden, others)) = ledger.composition(line, 6)
        assert (times, others) == (3, 3)
        assert hidden == thinned(shown, 0.25)
        ((_, times), (_, others)) = ledger.composition(alone(line, 1), 6)
        assert (times, others) == (1, 5)
        assert ledger.composition(alone(line, 3), 6) == ((hidden, 6),)
        assert undrawn.composition(line_of(undrawn, kind), 6) == ((shown, 6),)
    row = ledger_table(ledger, 6).set_index("kind").loc["cloud"]
    assert row["releases"] == 6
    known = "never told who joins a round, each with chance 0.25, but who serves: 3 of 6"
    assert known in row["assumption"]
    said = summary(mechanism, 6, config.privacy, [])["assumptions"]
    assert any("to nobody else, but of who serves" in line for line in said)
    more = {"privacy.mechanism": "gradient", "training.rounds": 2}
    said = experiment_of(changes, ELECTED, more).summary()["assumptions"]
    assert "a zone in which nobody joins elects nobody, and adds its noise all the same" in said


@pytest.mark.parametrize("sums", [{}, SUMS])
def test_the_largest_epsilon_is_that_of_the_largest_line(sums):
    """More noise in some rounds never hides less noise in others."""
    ledger = mechanism_of(config_of(sums, PEERS, rounds=8)).ledger
    assert ledger.distrusted == {"servers", "cloud", "super_nodes"}
    for rounds in range(1, 9):
        by_kind = ledger.by_kind(rounds)
        largest = max(by_kind[kind] for kind in ledger.distrusted)
        assert ledger.verified(rounds) == pytest.approx(largest, rel=1e-9)
        assert by_kind["super_nodes"] >= by_kind["siblings"] * (1 - 1e-9) or not sums
    assert ledger.epsilon(line_of(ledger, "super_nodes"), 8) <= 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("sums", [{}, {"secure_aggregation.layers": [2]}])
def test_trusted_super_nodes_read_everything_from_their_first_round_on(mechanism, sums):
    """C2: the super-node adds the noise itself. 2 serves first, 0 next; each sees no other then."""
    changes = {"algorithm": "hdp", "privacy.mechanism": mechanism}
    config = config_of(changes, sums, rounds=4, fanouts=(1, 4))
    ledger = mechanism_of(config, served([2, 0, 1, 3])).ledger
    siblings = [ledger.by_kind(rounds)["siblings"] for rounds in range(1, 5)]
    for device, first in {0: 1, 1: 1, 2: 2, 3: 1}.items():
        own = alone(line_of(ledger, "super_nodes"), device)
        found = [ledger.epsilon(own, rounds) for rounds in range(1, 5)]
        assert found == siblings[: first - 1] + [inf] * (5 - first)
    assert ledger.by_kind(4)["super_nodes"] == inf
    assert ledger.epsilon(line_of(ledger, "cloud"), 4) <= 1


def test_a_trusted_cloud_protects_from_peers_who_get_words_only():
    """CDP binds siblings, who read un-noised messages in office unless only the cloud can."""
    changes = {"algorithm": "cdp", "training.rounds": 2, "training.local_aggregation": None}
    with pytest.raises(InputError) as caught:
        experiment_of(ELECTED, changes)
    assert (caught.value.key, caught.value.value) == ("algorithm", "cdp")
    sums = {"secure_aggregation.layers": [2], "secure_aggregation.decode": "cloud"}
    promised = experiment_of(ELECTED, changes, sums).summary()
    by_observer = promised["epsilon_by_observer"]
    assert by_observer["super_nodes"] == by_observer["siblings"] <= 4
    assert {"siblings", "super_nodes"} <= set(promised["distrusted"])


def test_who_distrusts_siblings_distrusts_them_as_super_nodes():
    config = config_of({"threat.distrusted": ["cloud", "siblings"]})
    assert mechanism_of(config).ledger.bound == {"cloud", "super_nodes", "siblings"}
    fixed = {"topology.super_nodes.kind": "fixed", "threat.distrusted": ["cloud", "siblings"]}
    ledger = mechanism_of(config_of(fixed), drawn=False).ledger
    assert ledger.bound == {"cloud", "siblings"}
    assert "super_nodes" not in {line.kind for line in ledger.lines}


def test_zones_of_one_device_have_nobody_else_to_elect():
    changes = {"threat.distrusted": ["super_nodes"], "privacy.mechanism": "upload"}
    with pytest.raises(InputError, match="are nobody in this network"):
        mechanism_of(config_of(changes, fanouts=(3, 1)))
