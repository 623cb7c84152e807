"""Somebody who reads the messages of a whole search beside those of the released run."""

from dataclasses import replace

import numpy as np

from m2fdp.adversaries.audit import line_scores
from m2fdp.adversaries.bounds import choose_rule, epsilon_bound
from m2fdp.privacy.procedures import Procedure, split_target

COPIES, DELTA = 6000, 1e-2


def test_who_reads_all_runs_stays_below_the_whole_and_beats_a_build_that_forgets_the_search(
    make_system,
):
    # One side, wrong with probability at most 0.005 of a sound build; the seeds are fixed.
    targets = split_target(4.0, DELTA, 3, 0.9)
    systems = [
        make_system(epsilon=epsilon, delta=DELTA, rate=1.0, rounds=2, steps=2)
        for epsilon in (targets.released, *[targets.searched] * 3)
    ]
    planted = [system.plant(COPIES, seed) for seed, system in enumerate(systems)]
    (canaries, line), *_ = planted
    scores = np.zeros(COPIES)
    for system, (copies, its_line) in zip(systems, planted, strict=True):
        assert (copies.present == canaries.present).all()
        assert its_line.position.members == line.position.members
        scores += line_scores(system, copies, its_line, 2)[0]
    half, present = np.arange(COPIES) // 2 % 2 == 0, canaries.present
    rule = choose_rule(scores[~present & half], scores[present & half], DELTA, 0.005)
    lower = epsilon_bound(rule, scores[~present & ~half], scores[present & ~half], DELTA, 0.005)

    released, *searched = (system.mechanism.ledger for system in systems)
    # Records of the search's runs are all trained on here.
    as_trained = [
        replace(each, lines=(*each.lines, *(replace(x, held_out=True) for x in each.lines)))
        for each in searched
    ]
    whole = Procedure(released, tuple(as_trained))
    assert lower <= whole.epsilon(line.kind) <= 4.0
    assert lower > Procedure(released, ()).epsilon(line.kind)
