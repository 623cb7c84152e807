"""Bets against epsilon: false alarms no more often than stated, whenever one looks, and power."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from tests.adversaries.copies import epsilon_shown

from m2fdp.adversaries.evidence import _BETTORS, largest_bound, no_evidence, weigh

ALPHA = 0.05


def worlds_at(epsilon, delta, copies, rng):
    """Scores of the pair of laws that (epsilon, delta) just allows: a copy tells all with
    probability delta, and else the truth with odds of exp(epsilon)."""
    told = 40.0
    worlds = []
    for truth in (-1, 1):
        lies = rng.random(copies) < 1 / (1 + exp(epsilon))
        scores = epsilon * truth * np.where(lies, -1, 1)
        worlds.append(np.where(rng.random(copies) < delta, told * truth, scores))
    return worlds


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.05), (2.0, 1e-3)])
@pytest.mark.parametrize("louder", [1.0, 3.0])
def test_what_epsilon_just_allows_is_refuted_no_more_often_than_stated(epsilon, delta, louder):
    """Looked at after every copy, 200 of each world, by scores that are right or too bold: of 400
    audits at most 34 go wrong where each does with 5 %, but for a chance of 0.2 %."""
    limit = int(binom.isf(2e-3, 400, ALPHA))
    wrong = 0
    for seed in range(400):
        absent, present = worlds_at(epsilon, delta, 200, np.random.default_rng(seed))
        evidence = no_evidence(200, delta, ALPHA)
        beyond = np.searchsorted(evidence.epsilons, epsilon)  # one doubt decides
        one = slice(beyond, beyond + 1)
        evidence = type(evidence)(
            delta, ALPHA, evidence.epsilons[one], evidence.wealths[one], evidence.refuted[one]
        )
        wrong += bool(weigh(evidence, louder * absent, louder * present).refuted[0])
    assert limit == 34
    assert wrong <= limit


@given(
    epsilon=st.floats(0.05, 4.0),
    delta=st.floats(0.0, 0.5),
    scores=st.lists(st.floats(-60.0, 60.0), min_size=2, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_bettor_gains_on_average_by_what_epsilon_allows(epsilon, delta, scores, seed):
    """For all laws of all scores: two that epsilon allows, mixed with delta of any two others."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(len(scores), 0.5), 3)
    absent = chances[0]
    tilted = absent * np.exp(epsilon * rng.choice([-1.0, 0.0, 1.0], len(scores)))
    inside = tilted / tilted.sum()
    if (inside > exp(epsilon) * absent + 1e-12).any() or (
        absent > exp(epsilon) * inside + 1e-12
    ).any():
        inside = absent
    laws = (1 - delta) * np.stack([absent, inside]) + delta * chances[1:]
    evidence = no_evidence(200, delta, ALPHA)
    at = np.searchsorted(evidence.epsilons, epsilon)
    means = np.zeros(len(_BETTORS))
    for one, chance in zip(scores, laws[0], strict=True):
        for other, its_chance in zip(scores, laws[1], strict=True):
            after = weigh(evidence, np.array([one]), np.array([other]))
            means += chance * its_chance * np.exp(after.wealths[at] - evidence.wealths[at])
    assert (means <= 1 + 1e-9).all()


def test_a_bound_is_that_of_all_copies_however_they_are_looked_at():
    absent, present = worlds_at(1.5, 0.0, 700, np.random.default_rng(0))
    bound = epsilon_shown(absent, present, 0.0, 1 - ALPHA)
    evidence = no_evidence(700, 0.0, ALPHA)
    for some in np.split(np.arange(700), [1, 10, 333, 600]):
        before = evidence.bound
        evidence = weigh(evidence, absent[some], present[some])
        assert evidence.bound >= before
    assert evidence.bound == bound
    # Worth 1.5, and shown close to it.
    assert 1.1 < bound <= 1.5


def test_no_scores_pass_the_largest_bound():
    """20 copies that tell all: (1 + exp(-e))^40 = 20 at e = 2.55; more copies show nearly as much
    as they can."""
    assert largest_bound(20, 0.0, ALPHA) == pytest.approx(-log(20 ** (1 / 40) - 1))
    for copies, least in ((20, 0.8), (100, 0.9), (1000, 0.94)):
        sure = np.full(copies, 40.0)
        bound = epsilon_shown(-sure, sure, 1e-5, 1 - ALPHA)
        most = largest_bound(copies, 1e-5, ALPHA)
        assert least * most < bound <= most
    assert epsilon_shown(sure, -sure, 1e-5, 1 - ALPHA) == 0.0
    assert largest_bound(0, 1e-5, ALPHA) == largest_bound(50, 0.99, ALPHA) == 0.0
