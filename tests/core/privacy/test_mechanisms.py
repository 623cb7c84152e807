"""Where the mechanisms put how much noise: by hand, minimal, and refused where unproven."""

from dataclasses import replace
from math import inf, log, sqrt

import numpy as np
import pytest
from tests.builders import premises_of
from tests.core.privacy.parts import mechanism_of, network_of, plans_of

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.privacy.accounting import epsilon, least_noise, scaled, subsampled
from m2fdp.core.privacy.calibration import build_mechanism, no_privacy
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.privacy.summary import summary, warnings
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan, sample_weights
from m2fdp.core.topology.trust import draw_trust
from m2fdp.given.edges import tree_from_edges
from m2fdp.given.loading import parse_config

DELTA = 1e-5
# A is trusted with 1 device below a and 2 below b; B and d are untrusted with 1 device.
EDGES = [("c", "A"), ("c", "B"), ("A", "a"), ("A", "b"), ("B", "d")]
EDGES += [("a", "1"), ("b", "2"), ("b", "3"), ("d", "4")]
RAGGED = network_of(tree_from_edges(EDGES), ["B", "d"])


def of_ragged(plans, batch, **more):
    return mechanism_of(RAGGED, plans, batch=batch, size=[60, 300, 60, 100], **more)


def gradient(epsilon=2.0, **more):
    chosen = {"mechanism": "gradient", "calibration": "accountant", "clipping_norm": 0.5}
    return chosen | {"epsilon": epsilon} | more


def upload(epsilon=1.0, **more):
    return {"calibration": "accountant", "epsilon": epsilon} | more


def test_paper_noise_is_proposition_1_with_lemma_1():
    network = network_of([2, 3, 4], ["server-1-0", "server-2-0"])
    mechanism = mechanism_of(
        network, plans_of(10, 4), batch=30, size=60, alpha=3, epsilon=2, clipping_norm=0.5
    )
    scale = 3 * 0.5 * sqrt(4 * 10 * log(1e5)) / 2
    sensitivity = 2 * 4 * 0.5  # of a device, over eta
    layers = mechanism.noise.messages
    # Layer 1: only the trusted server noises, below it are 3 x 4 devices.
    assert layers[1] == pytest.approx([0, scale * sensitivity / 12])
    # Layer 2: the trusted children of the untrusted server.
    shared = scale * sensitivity / 4
    assert layers[2] == pytest.approx([0, shared, shared, 0, 0, 0])
    # Devices: those below the untrusted server of layer 2.
    assert layers[3] == pytest.approx([scale * sensitivity] * 4 + [0] * 20)
    assert not mechanism.noise.steps.any()
    # Lemma 1's s_l is the least number of children in the layer, of the ragged tree 1 and 1.
    mechanism = of_ragged(plans_of(10, 4), 30)
    scale = 10 * 0.5 * sqrt(4 * 10 * log(1e5)) * 2 * 4
    assert mechanism.noise.messages[1] == pytest.approx([scale, 0])
    assert mechanism.noise.messages[3] == pytest.approx([0, 0, 0, scale])


@pytest.mark.parametrize(
    ("more", "units"),
    [
        (upload(), [2 * 0.5] * 4),  # two clipped minibatch gradients
        (upload(unit="device"), [0.5] * 4),
        (gradient(), [0.5 / 60 * 0.5, 0.5 / 300 * 0.25, 0.5 / 60 * 0.25, 0.5 / 100]),
        (gradient(unit="device"), [0.5 * w for w in (0.5, 0.25, 0.25, 1.0)]),
    ],
)
def test_units(more, units):
    lines = of_ragged(plans_of(2, 2), 300, **more | {"clipping_norm": 0.5}).ledger.lines
    found = {device: line.position.unit for line in lines for device in line.position.members}
    assert [found[device] for device in range(4)] == pytest.approx(units)


def test_clipping_follows_the_unit():
    def clipping(**more):
        return of_ragged(plans_of(1, 1), 300, **more).clipping

    papers = clipping()
    assert (papers.batch_norm, papers.record_norm, papers.divide_by) == (1, None, "drawn")
    records = clipping(**gradient())
    assert (records.batch_norm, records.record_norm, records.divide_by) == (None, 0.5, "expected")
    assert clipping(**upload(unit="device")).update_norm == 1
    assert clipping(**gradient(unit="device")).batch_norm == 0.5


def test_gradient_noise_covers_the_largest_shift_below_a_trusted_server():
    mechanism = of_ragged(plans_of(10, 4), 30, **gradient())
    lock_step = mechanism.lock_step
    assert lock_step.nodes.tolist() == [[1, 0], [3, 3]]
    assert lock_step.group_of.tolist() == [0, 0, 0, 1]
    assert lock_step.weights.tolist() == [0.5, 0.25, 0.25, 1.0]
    z = {q: least_noise(((subsampled(q), 40),), 2.0, DELTA) for q in (0.5, 0.1, 0.3)}
    shift = 0.5 / 30  # C/B, the same for all: the expected sizes are 30
    head = max(z[0.5] * 0.5, z[0.1] * 0.25, z[0.5] * 0.25) * shift
    assert mechanism.noise.steps == pytest.approx([head, z[0.3] * shift], rel=1e-6)
    assert not any(messages.any() for messages in mechanism.noise.messages)
    assert 2 * 0.99 < mechanism.epsilon(10) <= 2
    assert mechanism.epsilon(5) < mechanism.epsilon(10)


@pytest.mark.parametrize(
    ("more", "local", "threat", "remedy"),
    [
        (upload(), {1: 2}, {"distrusted": ["siblings"]}, "mechanism: gradient"),
        (upload(), {1: 2}, {"open_links": ["downlinks"]}, "mechanism: gradient"),
        (upload(), {}, {"open_links": ["uplinks"]}, "without trusted servers"),
        (gradient(), {}, {"open_links": ["uplinks"]}, "without trusted servers"),
    ],
)
def test_what_is_in_clear_can_not_be_distrusted(more, local, threat, remedy):
    with pytest.raises(InputError, match=f"can't be met for .*{remedy}"):
        mechanism_of(network_of([2, 3]), plans_of(3, 4, local), batch=1200, threat=threat, **more)


def test_a_budget_affords_the_last_round_within_it():
    mechanism = mechanism_of(network_of([2, 3]), plans_of(12, 2), **gradient())
    between, first = (mechanism.epsilon(7) + mechanism.epsilon(8)) / 2, mechanism.epsilon(1)
    budgets = {None: 12, 2.0: 12, between: 7, mechanism.epsilon(7): 7, first / 2: 0}
    assert {one: mechanism.affordable_rounds(one) for one in budgets} == budgets


def test_no_privacy_is_infinite_for_everybody():
    network = network_of([2, 2])
    privacy = PrivacyConfig(**gradient(), delta=DELTA)
    mechanism = no_privacy(network, plans_of(3, 2), privacy, ThreatConfig())
    assert mechanism.clipping.record_norm is mechanism.clipping.batch_norm is None
    assert not mechanism.noise.steps.any()
    assert mechanism.epsilon(3) == inf
    assert mechanism.affordable_rounds(1.0) == 3
    assert summary(mechanism, 3, privacy)["guarantee"] == "none"


def test_summary_and_warnings_say_what_the_promise_rests_on():
    privacy = PrivacyConfig(**upload(), mechanism="upload", delta=DELTA, clipping_norm=1.0)
    mechanism = mechanism_of(network_of([2, 2]), plans_of(4, 4, {1: 2}), batch=1200, **upload())
    result = summary(mechanism, 4, privacy)
    assert result["epsilon_nominal"] == 1 >= result["epsilon_verified"]
    told = {"unit": "record", "adjacency": "add_remove", "drift": "worst_case"}
    assert result.items() >= told.items()
    assert result["epsilon_by_observer"]["siblings"] == "inf"
    assert result["accountant"].startswith("dp-accounting")
    lines = warnings(mechanism, 4, privacy)
    assert "siblings (ε ∞)" in lines[0]
    # What nobody can change is no warning.
    assert not set(result["assumptions"]) & set(lines)
    assert warnings(replace(mechanism, private=False), 4, privacy) == []


def test_delta_near_the_chance_of_being_used_is_told():
    """Of the position that is drawn least: 300 records, at rate q = 1e-3/300 in each of 8 steps."""
    chance, rounds = 1 - (1 - 1e-3 / 300) ** 8, 4

    def lines(batch, delta):
        asked = gradient(calibration="multiplier", noise_multiplier=0.2, delta=delta)
        built = of_ragged(plans_of(rounds, 2), batch, **asked)
        return [x for x in warnings(built, rounds, PrivacyConfig(**asked)) if "delta" in x]

    (line,) = lines(1e-3, 0.9 * chance)
    assert line.startswith(
        f"privacy.delta = {0.9 * chance:g} is 0.9 of the chance that a record is ever used, "
        f"{chance:.3g} (devices below a trusted server of layer 1, q = 3.33e-06): "
    )
    # Device 2 counts a quarter; the loudest noise below its server is for one that counts a half.
    assert "behind noise of 0.4 times" in line
    assert line.endswith(f"; use at most {chance / 10:.2g}")
    assert lines(1e-3, 0.11 * chance)
    assert not lines(1e-3, 0.09 * chance)
    assert not lines(30, 1e-5)


def test_what_is_hardly_ever_drawn_is_noised_all_the_same():
    """Delta covers the chance of ever being drawn: no noise at all would have epsilon 0."""
    rare = ((subsampled(1e-4), 10),)
    assert epsilon(((subsampled(1e-4, 400), 10),), 5e-3) == 0
    certain = least_noise(((subsampled(1.0), 1),), 1.0, 5e-3)
    assert least_noise(rare, 1.0, 5e-3) == certain > 1
    # A delta below that chance is spent as usual.
    assert least_noise(rare, 1.0, 5e-4) < certain


def test_least_noise_is_enough_where_the_grid_changes_with_it():
    composition, delta, target = ((subsampled(2.5e-4), 24),), 6.2e-11, 0.08259704
    noise = least_noise(composition, target, delta)
    assert 0.99 * target < epsilon(scaled(composition, 1 / noise), delta) <= target


def random_system(number):
    """A network, shards and a promise of any kind, by number; from 45 on with noise in parts."""
    drawn = np.random.default_rng([14, number])
    depth = int(drawn.integers(1, 4))
    fanouts = [int(n) for n in drawn.integers(2, 5, depth)]
    tree = tree_from_fanouts(fanouts)
    trust = draw_trust(tree, drawn.choice([0, 0.5, 1], depth - 1), number)
    participants = int(drawn.integers(1, 4)) if drawn.random() < 0.4 else None
    sizes = drawn.choice([50, 200, 1000], tree.n_devices)
    network = Network(tree, trust, noise_plan(tree, trust), participants)
    rates = np.minimum(1, drawn.choice([4, 16, 1000]) / sizes)
    if number >= 45:
        rates, extra = 1.0, drawn.choice([0, 0, 0.5], depth + 1)
        parts = [
            np.where(part > 0, drawn.choice([0.3, 1.0, 1.5], len(part)), more)
            for part, more in zip(network.noise[1:], extra[1:], strict=True)
        ]
        rho = sample_weights(tree, sizes) if drawn.random() < 0.5 else None
        network = Network(tree, trust, (np.zeros(1), *parts), rho=rho)
    more = {"epsilon": np.exp(drawn.uniform(-2.5, 2)), "delta": 10 ** drawn.uniform(-9, -4)}
    if drawn.random() < 0.6:
        unit = "device" if drawn.random() < 0.3 else "record"
        more |= {"mechanism": "upload", "unit": unit}
    elif drawn.random() < 0.3:
        more |= {"adjacency": "replace_one"}
    rounds, steps = drawn.integers([1, 1], [9, 6]).tolist()
    local = {layer: int(drawn.integers(1, 4)) for layer in range(1, depth) if drawn.random() < 0.5}
    plans = plans_of(rounds, steps, local)
    kinds = [["servers", "cloud"], ["cloud"], ["public"], ["cloud", "far_devices"]]
    if "mechanism" not in more:
        kinds.append(["cloud", "siblings"])
    elif depth > 1 and local:
        kinds.pop()
    threat = {"distrusted": kinds[drawn.integers(len(kinds))]}
    return premises_of(network, plans, {"clipping_norm": 1} | more, threat, sizes, rates)


QUICK = [*range(10), *range(45, 75)]
FULL = [pytest.param(number, marks=pytest.mark.full) for number in range(10, 45)]


@pytest.mark.parametrize("number", QUICK + FULL)
def test_any_calibration_ends_within_a_percent_of_its_target_and_never_above(number):
    premises = random_system(number)
    spent, target = build_mechanism(premises).epsilon(len(premises.plans)), premises.privacy.epsilon
    assert 0.99 * target < spent <= target


def test_the_summary_says_what_distrusted_observers_could_learn_together():
    """hfl_dp: five devices a server; four siblings know all noises but the record's own."""
    network = network_of([10, 5], [f"server-1-{i}" for i in range(10)])
    privacy, said = PrivacyConfig(mechanism="upload", epsilon=1, delta=DELTA, clipping_norm=1), {}
    for kind in ("siblings", "servers"):
        premises = premises_of(network, plans_of(20, 4), privacy, {"distrusted": [kind]}, 1200)
        mechanism = build_mechanism(premises)
        assert mechanism.epsilon(20) == pytest.approx(1, rel=1e-3)
        together = 2.15 if kind == "siblings" else 1
        assert mechanism.ledger.pooled(20) == pytest.approx(together, rel=3e-3)
        promise = summary(mechanism, 20, privacy)
        said[kind] = [promise["assumptions"], warnings(mechanism, 20, privacy)]
    assert all(any("up to ε 2.15" in line for line in lines) for lines in said["siblings"])
    assert not any("pool" in line for lines in said["servers"] for line in lines)


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"calibration": "paper"}, "not defined for mechanism: gradient; use accountant"),
        ({"adjacency": "replace_one", "unit": "device"}, "use add_remove"),
        ({"mechanism": "upload", "adjacency": "replace_one"}, "use add_remove"),
        ({"mechanism": "upload", "calibration": "paper", "unit": "device"}, "knows records"),
    ],
)
def test_what_is_not_defined_is_told_in_one_line(privacy, words):
    with pytest.raises(InputError, match=rf"^privacy: .*{words}") as caught:
        check_config(parse_config({"privacy": privacy}))
    assert "\n" not in str(caught.value)


def test_an_unknown_mechanism_is_told_with_the_known_ones():
    with pytest.raises(InputError, match="privacy.mechanism = 'laplace': .*gradient, upload"):
        get_mechanism("laplace")
