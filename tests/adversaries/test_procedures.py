"""Somebody who reads the messages of a whole search beside those of the released run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.adversaries.copies import epsilon_shown
from tests.adversaries.test_joining import pulled
from tests.builders import experiment_of, premises_of, process_of
from tests.convergence.settings import network_on

from m2fdp.adversaries.audit import listen, log_ratios, window_laws
from m2fdp.adversaries.heard import heard_by
from m2fdp.adversaries.membership import Rule, epsilon_bound
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.selection.accounting import Procedure, split_target

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
    planted = [system.plant(COPIES // 10, seed) for seed, system in enumerate(systems)]
    (canaries, line), *_ = planted
    known, scores = 30, np.zeros(COPIES // 10)
    for system, (copies, its_line) in zip(systems, planted, strict=True):
        assert (copies.present == canaries.present).all()
        assert its_line.position.members == line.position.members
        releases = listen(copies, 2)
        silent = releases[..., ~copies.present][..., :known]
        laws = window_laws(its_line, copies, system.privacy)
        scores += log_ratios(releases, laws, silent, both=False)
    present = canaries.present
    worlds = scores[~present][known:], scores[present][known:]
    lower = epsilon_shown(*worlds, DELTA, 0.995)

    released, *searched = (system.mechanism.ledger for system in systems)
    whole = all_trained_on(released, searched)
    assert lower <= whole.epsilon(line.kind) <= 4.0
    assert lower > Procedure(released, ()).epsilon(line.kind)


def all_trained_on(released, searched):
    """The procedure whose searches hold no record out."""
    lines_twice = (
        replace(each, lines=(*each.lines, *map(held_out, each.lines))) for each in searched
    )
    return Procedure(released, tuple(lines_twice))


def held_out(line):
    return replace(line, account=replace(line.account, held_out=True))


def draws_of_a_search():
    """Those of the released run, and of the three runs of the counted search that chose it."""
    searching = {"partition.held_out_by": "devices", "partition.validation_fraction": 0.2}
    changes = [{}, *({**searching, "training.learning_rate": rate} for rate in (0.1, 0.2, 0.4))]
    small = {"topology.fanouts": [2, 3], "training.rounds": 1, "training.batch_size": 8}
    return [experiment_of(small, each).simulation().randomness for each in changes]


@pytest.mark.parametrize("together", [False, True], ids=["drawn apart", "drawn together"])
def test_no_chance_of_being_drawn_is_that_of_all_runs_of_a_search(together):
    """A star whose every second device has one record that is pulled as far as clipping lets it,
    drawn with q = 0.1, in each of four runs. A build that draws the same minibatches in all shows
    more than the ledger of the four says. A bound is wrong with a probability of 1 %, over seeds.
    """
    n_devices = 2 * COPIES
    network = network_on(tree_from_fanouts([n_devices]))
    plans = Schedule(1, 1, {}, 0.5, "constant").round_plans()
    privacy = {"calibration": "multiplier", "noise_multiplier": 0.6, "delta": DELTA}
    premises = premises_of(network, plans, privacy, sizes=10, rates=0.1)
    mechanism, present = build_mechanism(premises), np.arange(n_devices) % 2 == 1
    labels = torch.zeros(n_devices, 10, dtype=torch.int64)
    labels[present, 0] = 1
    features = torch.ones(10 * n_devices, 1, 1, 1, dtype=torch.float64)
    shards = Shards(features, labels.flatten(), np.full(n_devices, 10), premises.rates)
    scores, first = np.zeros(n_devices), None

    def tap(direction, layer, models):
        scores[:] -= models[:, 0].numpy()  # records pull down

    for draws in draws_of_a_search():
        first = first or draws
        draws = replace(draws, sampling=first.sampling) if together else draws
        process = process_of(network, mechanism, pulled(), shards, draws, chunk_size=4096)
        heard_by(process, tap).round(process.start(), plans[0])
    rule = Rule(True, 3.3 * scores[~present].std())
    lower = epsilon_bound(rule, scores[~present], scores[present], DELTA, 0.005)
    whole = all_trained_on(mechanism.ledger, [mechanism.ledger] * 3).epsilon("cloud")
    assert (lower > whole) == together
