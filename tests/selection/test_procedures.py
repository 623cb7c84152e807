"""Epsilon of a search with the run that it chooses: by hand, by quadrature, and a build that
forgets the search."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from m2fdp import Experiment, load_config
from m2fdp.core.privacy.accounting import epsilon, subsampled
from m2fdp.selection.accounting import Procedure, split_target
from m2fdp.studies.search import procedure_of, verified_targets

FULL = {
    "topology.fanouts": [2, 3],
    "training.rounds": 2,
    "training.local_steps": 1,
    "training.local_aggregation": None,
    "training.batch_size": None,
    "privacy.epsilon": 1.0,
}
ONE_STEP = {"training.rounds": 1}
HOLDING = {"partition.held_out_by": "devices", "partition.validation_fraction": 0.2}


def config_of(*layers):
    return load_config(FULL, *layers, seed=3)


def gaussian(*shifts):
    return epsilon(((subsampled(1.0, sqrt(sum(s * s for s in shifts))), 1),), 1e-5)


def exact_delta(laws, eps):
    """Of releases with random shifts, together: the integral over all of them, in both
    directions."""
    grids = [np.linspace(-8.5, law.largest + 8.5, 181) for law in laws]
    plain = moved = np.ones((1,) * len(laws))
    for axis, (law, grid) in enumerate(zip(laws, grids, strict=True)):
        shape = [-1 if axis == other else 1 for other in range(len(laws))]
        width = grid[1] - grid[0]
        pairs = zip(law.shifts, law.probabilities, strict=True)
        plain = plain * (norm.pdf(grid) * width).reshape(shape)
        moved = moved * (sum(p * norm.pdf(grid - s) for s, p in pairs) * width).reshape(shape)
    return max(
        np.clip(one - np.exp(eps) * other, 0, None).sum()
        for one, other in ((plain, moved), (moved, plain))
    )


def laws_of(ledgers, kind, device, held_out):
    """The law of the one release of each run, for one device's records."""
    result = []
    for number, ledger in enumerate(ledgers):
        (line,) = [
            line
            for line in ledger.lines
            if (line.kind, line.account.held_out) == (kind, held_out and number > 0)
            and device in line.position.members
        ]
        ((law, count),) = ledger.composition(line, 1)
        assert count == 1
        result.append(law)
    return result


@settings(max_examples=25, deadline=None)
@given(st.floats(0.3, 6.0), st.integers(1, 12), st.floats(0.05, 0.8))
def test_targets_of_gaussian_runs_add_up_to_the_whole(target, n_searched, share):
    targets = split_target(target, 1e-5, n_searched, share)
    # The shift of each run by bisection, which knows nothing of how targets were split.
    shifts = []
    for part in (targets.released, targets.searched):
        low, high = 0.0, 10.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if gaussian(middle) <= part else (low, middle)
        shifts.append(low)
    whole = gaussian(shifts[0], *[shifts[1]] * n_searched)
    assert 0.999 * target <= whole <= target + 1e-9


def test_runs_of_full_batches_keep_the_target_together_and_say_what_each_is_worth():
    released, searched = [config_of()], [config_of(HOLDING)] * 4
    targets = verified_targets(searched, released, 0.25)
    privacy = released[0].privacy
    assert targets == split_target(privacy.epsilon, privacy.delta, 4, 0.25)
    procedure = procedure_of(
        config_of({"privacy.epsilon": targets.released}),
        [config_of(HOLDING, {"privacy.epsilon": targets.searched})] * 4,
    )
    lines = procedure.lines().set_index("kind")
    assert lines.loc["cloud", "runs"] == 5
    for kind in ("servers", "cloud", "public"):
        assert 0.99 < lines.loc[kind, "epsilon"] <= 1.0
        assert lines.loc[kind, "epsilon_released"] <= targets.released < 0.87
    assert procedure.verified() == max(lines.loc[["servers", "cloud"], "epsilon"])
    # Whoever reads un-noised messages reads them in every run.
    assert lines.loc["trusted_servers", "epsilon"] == float("inf")


@pytest.mark.parametrize("held_out", [False, True])
def test_two_sampled_runs_and_the_released_one_are_what_quadrature_says(held_out):
    batches = {"training.batch_size": 8} | ONE_STEP
    released = config_of(batches, {"privacy.epsilon": 1.5})
    searched = [
        config_of(batches, HOLDING, {"privacy.epsilon": 1.0}),
        config_of(ONE_STEP, HOLDING, {"privacy.epsilon": 0.7}),
    ]
    whole = procedure_of(released, searched)
    exact_of = {}
    for device in range(6):
        laws = laws_of((whole.released, *whole.searched), "cloud", device, held_out)
        exact_of[device] = lambda eps, laws=laws: exact_delta(laws, eps)
    claimed = whole.epsilon("cloud")
    # A bound for every device's records, and no empty one.
    assert all(exact(claimed) <= 1e-5 for exact in exact_of.values())
    assert any(exact(0.85 * claimed) > 1e-5 for exact in exact_of.values())
    # A build that forgets the search claims what three runs do not keep.
    forgetful = replace(whole, searched=())
    assert any(exact(forgetful.epsilon("cloud")) > 1e-5 for exact in exact_of.values())


def test_where_runs_are_no_gaussians_targets_shrink_until_the_ledgers_agree():
    batches = {"training.batch_size": 4, "training.rounds": 3}
    released, searched = [config_of(batches)], [config_of(batches, HOLDING)] * 3
    targets = verified_targets(searched, released, 0.25)
    procedure = procedure_of(
        config_of(batches, {"privacy.epsilon": targets.released}),
        [config_of(batches, HOLDING, {"privacy.epsilon": targets.searched})] * 3,
    )
    assert 0.8 < procedure.verified() <= 1.0


def test_of_two_ways_a_record_may_take_the_worse_one_counts():
    released = Experiment.from_config(config_of()).calibrate().mechanism.ledger
    ledgers = {
        target: procedure_of(config_of(), [config_of(HOLDING, {"privacy.epsilon": target})])
        for target in (0.5, 2.0)
    }
    louder = ledgers[0.5].searched[0]
    quieter = ledgers[2.0].searched[0]
    trained, counted = (
        replace(
            louder,
            lines=tuple(
                mine if mine.account.held_out == of_held_out else theirs
                for mine, theirs in zip(quieter.lines, louder.lines, strict=True)
            ),
        )
        for of_held_out in (False, True)
    )
    for mixed in (trained, counted):
        assert Procedure(released, (mixed,)).verified() == pytest.approx(
            ledgers[2.0].verified(), rel=2e-3
        )
