"""Shifts of releases: by hand, in closed form, and against simulations device by device."""

import pytest
from hypothesis import given, settings
from tests.core.privacy.ragged import OWNERS, SYNCHRONISATIONS, path_shares, simulated

from m2fdp.core.privacy.taint import Steps, Window, device_law, record_law, windows
from m2fdp.core.schedule.rounds import RoundPlan

DELTA = 1e-5


def law_dict(law):
    return dict(zip(law.shifts, law.probabilities, strict=True))


def worst(window, head_layer, shares, q):
    return record_law(window, head_layer, shares, q, Steps())


ROUND = RoundPlan((None, 2, None, 1, None, 0), 0.1)


STEPS = (None, None)


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


@pytest.mark.parametrize("sync, first", [(None, 1.0), (1, 1.5)])
def test_two_steps_of_two_siblings(sync, first):
    """Drawn at step 2 the release moves by 1/2; first drawn at step 1 by 1. If there is an
    un-noised synchronisation between, the average differs by 1/2 then and both siblings start from
    it; in step 2 both may part by 1 more, so that the release moves by 3/2."""
    q = 0.3
    law = worst(Window((sync, None), 1), 1, (0.5,), q)
    assert law_dict(law) == pytest.approx({first: q, 0.5: q * (1 - q), 0.0: (1 - q) ** 2})


@settings(max_examples=40, deadline=None)
@given(SYNCHRONISATIONS, OWNERS)
def test_device_unit_against_every_device(syncs, owner):
    window = Window((*syncs, None), 1)
    law = device_law(window, 1, path_shares(owner))
    shift = simulated(window.syncs, owner, 1, others=2.0, per_sync=True)
    assert law.shifts == pytest.approx((shift,))
    assert law.probabilities == (1.0,)


def pairs_of(law):
    return list(zip(law.shifts, law.probabilities, strict=True))


@pytest.mark.parametrize(("n", "q"), [(60, 0.01), (200, 0.003), (100, 0.2)])
def test_many_shifts_are_rounded_up_only(n, q):
    law = worst(Window((None,) * n, 1), 1, (), q)
    assert len(law.shifts) <= 32
    exact = [((1 - q) ** n, 0.0)] + [(q * (1 - q) ** (k - 1), n - k + 1) for k in range(1, n + 1)]
    for x in range(n + 1):
        beyond = sum(p for p, shift in exact if shift >= x)
        assert sum(p for s, p in pairs_of(law) if s >= x - 1e-9) >= beyond - 1e-12
    assert sum(law.probabilities) == pytest.approx(1.0)
