"""The audit of runs with a proximal term: canaries attain the law of `m2fdp.core.privacy.taint`,
stay below the ledger, and show a ledger that takes a tainted centre for a public one."""

from dataclasses import replace

import numpy as np
import pytest
from tests.adversaries.copies import bounds_of, silent

from m2fdp.adversaries.audit import audited_lines, listen
from m2fdp.adversaries.canaries import plant
from m2fdp.core.privacy.taint import windows

CENTERS = ["received", "global"]


@pytest.fixture(scope="module")
def run_of(make_system):
    """Two edge servers with five devices each; `part` is eta mu."""
    usual = {"fanouts": (2, 5), "untrusted": (), "mechanism": "upload", "epsilon": 1.0}
    usual |= {"rounds": 1, "steps": 8, "rate": 1.0, "local_aggregation": {1: 2}}
    return lambda part, center, **changes: make_system(**usual | changes, pull=part, center=center)


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("part", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("untrusted", [(), ("server-1-0", "server-1-1")], ids=["branch", "parent"])
def test_canaries_move_their_release_by_the_law_s_largest_shift(run_of, part, center, untrusted):
    """Whole shards and no noise: every copy with a canary is away from every one without by it."""
    run = run_of(part, center, untrusted=untrusted)
    canaries, line = run.plant(8, seed=3)
    seen = listen(silent(canaries), 1)
    head = line.position.head_layer
    for release, window in zip(seen[0], windows(canaries.plan, head), strict=True):
        alone = replace(canaries.plan, layers=(*window.syncs[:-1], 0))
        ((law, _),) = line.laws(line.position, alone)
        moved = release[canaries.present].mean() - release[~canaries.present].mean()
        assert np.ptp(release[~canaries.present]) == pytest.approx(0.0, abs=1e-9)
        # A hundredth of a canary's push, and of those that renew its mark, goes into the mark.
        assert abs(moved) == pytest.approx(law.largest * line.position.unit, rel=2e-4)


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize(
    "changes",
    [
        {"part": 0.3},
        {"part": 0.3, "rate": 0.3, "rounds": 3, "untrusted": ("server-1-1",)},
        {"part": 0.5, "mechanism": "gradient", "rate": 0.5, "rounds": 2},
    ],
    ids=["upload", "small q", "gradient"],
)
def test_the_lower_bound_stays_below_the_ledger(run_of, changes, center):
    # At most two observers in six cases: a false alarm in any with probability at most 0.01.
    run = run_of(**changes, center=center)
    for found in run.audit(400, confidence=1 - 0.01 / 12, seed=3):
        assert 0 <= found.epsilon_lower <= found.epsilon_upper <= 1.0


def test_a_centre_that_is_tainted_and_counted_as_public_is_caught(run_of):
    """Noise and ledger of a pull to the round's first model, but devices are pulled to what they
    last received from the trusted server, in clear. The whole difference is 2.7 times as large."""
    honest = run_of(0.5, "global", steps=16)
    (line,) = audited_lines(honest.mechanism.ledger, 1)
    broken = replace(honest, schedule=replace(honest.schedule, center="received"))
    received = run_of(0.5, "received", steps=16)
    (true_line,) = audited_lines(received.mechanism.ledger, 1)
    claimed, real = (
        one.laws(one.position, run.schedule.round_plans()[0])[0][0].largest
        for one, run in ((line, honest), (true_line, received))
    )
    assert real > 2.5 * claimed
    for run, its_line, holds in (
        (honest, line, True),
        (received, true_line, True),
        (broken, line, False),
    ):
        canaries = plant(run, its_line.position, 300, seed=3)
        lower, upper = bounds_of(run, canaries, its_line, confidence=0.99)
        assert (lower <= upper) == holds
