"""Shifts of releases, without and with the proximal term: by hand, in closed form, against every
device and against two runs; and what the term is worth in the ledger."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.privacy.parts import mechanism_of, network_of
from tests.core.privacy.ragged import (
    OWNERS,
    SYNCHRONISATIONS,
    TREE,
    path_shares,
    simulated,
    synchronised,
    weights_below,
)

from m2fdp.core.privacy.accounting import least_noise
from m2fdp.core.privacy.taint import Steps, Window, device_law, record_law, windows
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.schedule.schedule import Schedule

DELTA = 1e-5


def pairs_of(law):
    return list(zip(law.shifts, law.probabilities, strict=True))


ROUND, STEPS = RoundPlan((None, 2, None, 1, None, 0), 0.1), (None, None)


@pytest.mark.parametrize(
    "head_layer, expected",
    [
        # A device below an untrusted parent releases at every aggregation.
        (3, [Window(STEPS, 3)] * 3),
        # Aggregations at or below the head do not reset.
        (1, [Window((None, 2, None, 1, None, None), 1)]),
        # Below a trusted server of layer 2, the aggregation up to layer 1 is a release.
        (2, [Window((None, 2, None, None), 2), Window(STEPS, 2)]),
    ],
)
def test_windows_end_where_something_noised_is_shown(head_layer, expected):
    assert windows(ROUND, head_layer) == expected


@pytest.mark.parametrize(
    ("sync", "pull", "first"),
    [
        (None, Steps(), 1.0),
        (1, Steps(), 1.5),
        (1, Steps(part=0.5, received=True), 1.5),
        (1, Steps(part=0.5, received=False), 1.25),
    ],
)
def test_two_steps_of_two_siblings(sync, pull, first):
    """Drawn at step 2 the release moves by 1/2; first drawn at step 1 by 1. If there is an
    un-noised synchronisation between, the average differs by 1/2 then and both siblings start from
    it; in step 2 both may part by 1 more, so that the release moves by 3/2.

    With half a pull both models keep a half of the 1/2, and get half of the centre's difference,
    which is the same 1/2 if it is the model received and none if it is the round's first."""
    q = 0.3
    law = record_law(Window((sync, None), 1), 1, (0.5,), q, pull)
    assert dict(pairs_of(law)) == pytest.approx({first: q, 0.5: q * (1 - q), 0.0: (1 - q) ** 2})


@settings(max_examples=40, deadline=None)
@given(SYNCHRONISATIONS, OWNERS)
def test_device_unit_against_every_device(syncs, owner):
    window = Window((*syncs, None), 1)
    law = device_law(window, 1, path_shares(owner))
    shift = simulated(window.syncs, owner, 1, others=2.0, per_sync=True)
    assert law.shifts == pytest.approx((shift,))
    assert law.probabilities == (1.0,)


@pytest.mark.parametrize(("n", "q"), [(60, 0.01), (200, 0.003), (100, 0.2)])
def test_many_shifts_are_rounded_up_only(n, q):
    law = record_law(Window((None,) * n, 1), 1, (), q, Steps())
    assert len(law.shifts) <= 32
    exact = [((1 - q) ** n, 0.0)] + [(q * (1 - q) ** (k - 1), n - k + 1) for k in range(1, n + 1)]
    for x in range(n + 1):
        beyond = sum(p for p, shift in exact if shift >= x)
        assert sum(p for s, p in pairs_of(law) if s >= x - 1e-9) >= beyond - 1e-12
    assert sum(law.probabilities) == pytest.approx(1.0)


CENTERS = {"received": True, "global": False}


@pytest.mark.parametrize("part", [0.05, 0.1, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 5, 20])
def test_below_an_untrusted_parent_the_difference_is_a_geometric_sum(part, n):
    law = record_law(Window((None,) * n, 2), 2, (), 0.1, Steps(part=part))
    expected = sorted({round((1 - (1 - part) ** steps) / part, 12) for steps in range(1, n + 1)})
    assert law.shifts[1:] == pytest.approx(expected)
    assert law.largest <= 1 / part + 1e-12


# Largest shift and least noise for epsilon = 1, in units of 2 eta G; specs of paper G, 3.4.
TABLE = {
    0.0: [(5, 41.02), (20, 252.3), (16, 198.4), (16, 198.4)],
    0.05: [(4.52, 38.35), (12.83, 185.0), (14.48, 179.9), (11.15, 150.8)],
    0.1: [(4.10, 35.87), (8.78, 141.4), (13.10, 163.2), (8.11, 118.2)],
    0.2: [(3.36, 31.44), (4.94, 91.98), (10.76, 134.7), (4.85, 78.94)],
    0.5: [(1.94, 21.79), (2.00, 42.48), (6.20, 78.83), (2.00, 36.51)],
    1.0: [(1, 13.41), (1, 22.11), (3.20, 41.40), (1, 18.56)],
}
SYNCS = tuple(1 if step % 5 == 0 and step < 20 else None for step in range(1, 21))
COLUMNS = {
    "parent, 5": (Window((None,) * 5, 2), 2, (), 800, True),
    "parent, 20": (Window((None,) * 20, 2), 2, (), 200, True),
    "branch, received": (Window(SYNCS, 1), 1, (0.2,), 200, True),
    "branch, global": (Window(SYNCS, 1), 1, (0.2,), 200, False),
}


@pytest.mark.parametrize(("part", "column"), list(product(TABLE, COLUMNS)))
def test_the_least_noises_are_those_of_the_table(part, column):
    window, head_layer, shares, releases, received = COLUMNS[column]
    shift, noise = TABLE[part][list(COLUMNS).index(column)]
    law = record_law(window, head_layer, shares, 32 / 1200, Steps(part=part, received=received))
    assert law.largest == pytest.approx(shift, abs=0.006)
    found = least_noise(((law, releases),), 1.0, DELTA, "add_remove")
    assert found == pytest.approx(noise, rel=2e-3)


PULLS = st.builds(Steps, part=st.floats(0.0, 1.0), received=st.booleans())


@settings(max_examples=100, deadline=None)
@given(SYNCHRONISATIONS, OWNERS, st.floats(0.05, 1.0), PULLS | st.just(Steps()))
def test_ragged_deep_trees_against_every_device(syncs, owner, q, pull):
    window = Window((*syncs, None), 1)
    shifts = [simulated(window.syncs, owner, k, pull) for k in range(1, len(syncs) + 2)]
    chances = [q * (1 - q) ** k for k in range(len(shifts))]
    law = record_law(window, 1, path_shares(owner), q, pull)
    possible = [shift for shift, chance in zip(shifts, chances, strict=True) if chance > 0]
    assert law.largest == pytest.approx(max(possible))
    assert law.mean == pytest.approx(np.dot(shifts, chances))
    assert np.isclose(np.array(law.shifts)[:, None], [0.0, *shifts], rtol=1e-9).any(axis=1).all()


@settings(max_examples=60, deadline=None)
@given(SYNCHRONISATIONS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_stronger_pull_never_moves_more_and_the_first_model_contracts_most(syncs, one, other):
    """So that pulls may be rounded down, and rounds whose pull is not known count as without."""
    window, shares = Window((*syncs, None), 1), path_shares(0)
    weak, strong = sorted((one, other))

    def largest(part, received):
        return record_law(window, 1, shares, 0.3, Steps(part, received)).largest

    for received in (True, False):
        assert largest(strong, received) <= largest(weak, received) + 1e-9
    assert largest(strong, False) <= largest(strong, True) + 1e-12


def clipped(vectors):
    """To norm 1/2, so that two of them are at most 1 apart: the unit of the laws."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(1.0, 2.0 * norms)


def release_of(syncs, pull, gradients):
    """The model of the head after steps of eta = 1 on the ragged tree.

    Args:
        gradients: step k and models (N_L, M) -> (N_L, M).
    """
    models = np.zeros((TREE.n_devices, 3))
    first, received = models, models
    for step, sync in enumerate(syncs, start=1):
        center = received if pull.received else first
        models = models - clipped(gradients(step, models)) - pull.part * (models - center)
        if sync is not None:
            models = synchronised(models, sync)
            received = models
    return weights_below(1) @ models


def piecewise(rng):
    """Gradients that are constant on random half-spaces: of losses with kinks anywhere."""
    normals = rng.normal(size=(TREE.n_devices, 4, 3))
    offsets = 0.3 * rng.normal(size=(TREE.n_devices, 4))
    slopes = 10.0 * rng.normal(size=(TREE.n_devices, 16, 3))

    def gradients(models):
        above = np.einsum("jhm,jm->jh", normals, models) > offsets
        return slopes[np.arange(TREE.n_devices), above @ (2 ** np.arange(4))]

    return gradients


@settings(max_examples=150, deadline=None)
@given(SYNCHRONISATIONS, PULLS, st.integers(0, 2**31), st.integers(0, 8), st.integers(0, 9))
def test_two_runs_never_part_by_more_than_the_law(syncs, pull, seed, first, owner):
    """Any losses, un-noised synchronisations; at its first step, and at any later one or not, the
    record turns the owner's gradient into another."""
    syncs = (*syncs, None)
    first = 1 + first % len(syncs)
    rng = np.random.default_rng(seed)
    losses, of_record = piecewise(rng), piecewise(rng)
    drawn = rng.random(len(syncs)) < 0.5

    def with_record(step, models):
        gradients = losses(models)
        if step == first or (step > first and drawn[step - 1]):
            gradients[owner] = of_record(models)[owner]
        return gradients

    moved = release_of(syncs, pull, with_record)
    there = release_of(syncs, pull, lambda _, models: losses(models))
    allowed = simulated(syncs, owner, first, pull)
    assert np.linalg.norm(moved - there) <= allowed + 1e-9


@pytest.mark.parametrize("received", CENTERS.values(), ids=CENTERS)
@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("syncs", [(None,) * 6, (None, 2, None, 1, None, 3, None, None)])
def test_losses_that_flip_their_direction_part_by_the_law(syncs, part, received):
    """Without the record all gradients point one way, and all models keep to a known path; where
    a model is off it, its gradient points the other way."""
    pull, owner = Steps(part=part, received=received), 0
    paths = {}

    def one_way(step, models):
        paths[step] = models.copy()
        return np.tile([1.0, 0.0, 0.0], (TREE.n_devices, 1))

    there = release_of(syncs, pull, one_way)
    for first in range(1, len(syncs) + 1):

        def flipped(step, models, first=first):
            gradients = np.tile([1.0, 0.0, 0.0], (TREE.n_devices, 1))
            off = np.abs(models - paths[step]).max(axis=1) > 1e-12
            gradients[off] *= -1
            if step == first:
                gradients[owner, 0] = -1.0
            return gradients

        moved = release_of(syncs, pull, flipped)
        shift = simulated(syncs, owner, first, pull)
        assert np.linalg.norm(moved - there) == pytest.approx(shift)
    # A build that takes a tainted centre for a public one would count too little.
    if received and part and 1 in syncs:
        assert simulated(syncs, owner, 1, Steps(part=part, received=False)) < 0.9 * simulated(
            syncs, owner, 1, pull
        )


def plans(part, center="received", rounds=3, steps=6, local=None, eta=0.1, law="constant"):
    return Schedule(rounds, steps, local or {1: 2}, eta, law, part / eta, center).round_plans()


NETWORK = network_of([2, 3], ("server-1-1",))  # one edge server is trusted, and one is not
EVERYBODY = {
    "distrusted": ["servers", "cloud", "siblings", "cousins", "far_devices", "public"],
    "open_links": ["uplinks", "downlinks"],
}


def test_under_gradient_the_ledger_is_the_same_for_any_pull():
    def lines(part, center):
        privacy = {"mechanism": "gradient", "calibration": "accountant", "epsilon": 2.0}
        threat = {"distrusted": ["servers", "cloud", "public"]}
        ledger = mechanism_of(NETWORK, plans(part, center), threat=threat, **privacy).ledger
        return [(x.kind, x.sees, x.deviation, ledger.epsilon(x, 3)) for x in ledger.lines]

    without = lines(0.0, "received")
    for part, center in product((0.1, 1.0), CENTERS):
        assert lines(part, center) == without


def test_under_upload_every_observer_learns_less_and_none_is_left_out():
    """J's noise stays as it is; the shift behind every line shrinks, but of those in clear."""
    found = []
    for part, center in ((0.0, "received"), (0.3, "received"), (0.3, "global")):
        ledger = mechanism_of(NETWORK, plans(part, center), threat=EVERYBODY, alpha=3.0).ledger
        found.append([(x.position.is_device, x.kind, ledger.epsilon(x, 3)) for x in ledger.lines])
    plain, received, _ = found
    assert [line[:2] for line in plain] == [line[:2] for line in received]
    assert {kind for _, kind, _ in plain} >= {"servers", "cloud", "siblings", "public", "uplinks"}
    epsilons = ([line[2] for line in lines] for lines in found)
    for (is_device, *_), before, after, least in zip(plain, *epsilons, strict=True):
        if before == np.inf:
            assert after == least == np.inf
        else:
            assert after < before
            # Below an untrusted parent what is received is a noised release: public, as is the
            # round's first model. Inside a trusted branch it is not.
            assert least == after if is_device else least < after


def test_pulls_of_many_step_sizes_are_rounded_down_to_share_laws():
    few, many = (
        mechanism_of(NETWORK, plans(0.4, rounds=rounds, law="inverse_sqrt")).ledger
        for rounds in (8, 30)
    )
    for line, alike in zip(few.lines, many.lines, strict=True):
        for one, other in zip(few.plans, many.plans, strict=False):
            ((law, _),) = line.laws(line.position, one)[:1]
            ((rounded, _),) = alike.laws(alike.position, other)[:1]
            assert law.largest <= rounded.largest * (1 + 1e-9)
            assert rounded.largest <= 1.2 * law.largest
    laws = {many.lines[0].laws(many.lines[0].position, plan) for plan in many.plans}
    assert len(laws) < 12


def test_a_device_s_clipped_update_is_what_it_was():
    """The pull is inside what is clipped: for whole devices no law knows of it."""
    kept = {"unit": "device", "calibration": "accountant", "epsilon": 2.0}
    plain, pulled = (
        mechanism_of(NETWORK, plans(part), **kept).noise.messages for part in (0.0, 0.5)
    )
    assert all(map(np.array_equal, plain, pulled))
