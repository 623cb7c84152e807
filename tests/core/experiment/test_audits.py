"""`Experiment.audit` and its pipeline by neighbours, and epsilon beside an attack: what a user is
told."""

from math import inf, isfinite

import pandas as pd
import pytest
from rich.console import Console

from m2fdp import Experiment, load_config
from m2fdp.adversaries.config import AuditConfig
from m2fdp.adversaries.run import refuse_broken, tried_condition
from m2fdp.core.algorithms import ALGORITHMS, Algorithm
from m2fdp.core.algorithms.m2fdp import M2FDP
from m2fdp.core.engine import noise
from m2fdp.core.engine.rules import GradientStep, Rules
from m2fdp.core.errors import InputError
from m2fdp.pipelines.audit import draw_bounds, judge
from m2fdp.reporting.room_figures import print_neighbours

SMALL = {"topology.fanouts": [2, 2], "training.rounds": 1, "audit.method": "neighbours"}
# An own rule says of itself how far two runs drift apart.
CONDITIONAL = {"algorithm": "own", "privacy.mechanism": "upload"}


class Own(GradientStep):
    """What the project does not know."""


def own_rule(given):
    plan = M2FDP.plan(given)
    return plan.__class__(plan.network, plan.schedule, private=True, rules=Rules(local=Own()))


def experiment(monkeypatch, neighbours=4, **changes):
    monkeypatch.setattr(AuditConfig, "neighbours", neighbours)
    algorithm = Algorithm("own", "Own", "method", own_rule)
    monkeypatch.setitem(ALGORITHMS, "own", algorithm)
    return Experiment.from_config(load_config(SMALL, changes))


def test_every_observer_has_a_line_and_a_conditional_run_says_that_its_condition_held(monkeypatch):
    run = experiment(monkeypatch, **CONDITIONAL)
    table = run.audit()
    assert set(table["observer"]) >= {"its untrusted parent", "the cloud"}
    assert table["held"].all()
    assert tried_condition(run, table) == "condition tried on 4 neighbours: held"
    refuse_broken(table)


def test_a_run_without_a_condition_says_nothing_of_one(monkeypatch):
    run = experiment(monkeypatch)
    assert tried_condition(run, run.audit()) is None


def test_what_did_not_hold_is_one_line_after_all_is_written(monkeypatch):
    monkeypatch.setattr(noise.RoundNoise, "add", lambda *given: None)
    run = experiment(monkeypatch, **CONDITIONAL)
    table = run.audit()
    assert not table["held"].any()
    assert "did not hold for its untrusted parent" in str(tried_condition(run, table))
    console = Console(width=120, record=True, file=None)
    with console.capture() as captured:
        print_neighbours(table, console)
    assert "DOES NOT HOLD" in captured.get().replace("\n", " ")
    record = {"observers": table.to_dict("records")}
    assert draw_bounds(record).axes
    with pytest.raises(InputError) as caught:
        judge(record)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("audit.method = 'neighbours': finds a line")


def test_canaries_are_judged_by_nobody():
    refuse_broken(pd.DataFrame({"observer": ["the cloud"], "epsilon_lower": [1.0]}))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"control.enabled": True}, "control.enabled = True: an audit by neighbours needs rounds"),
        ({"algorithm": "hfl"}, "algorithm = 'hfl': adds no noise"),
    ],
)
def test_what_has_no_meaning_is_refused(changes, line):
    with pytest.raises(InputError) as caught:
        Experiment.from_config(load_config(SMALL, changes)).audit()
    assert str(caught.value).startswith(line)


def test_a_model_of_no_numbers_is_no_finding(monkeypatch):
    endless = lambda self, step, purpose, layer, scales, models, *nodes: models.fill_(inf)  # noqa: E731
    monkeypatch.setattr(noise.RoundNoise, "add", endless)
    with pytest.raises(InputError, match=r"training diverged .*; choose a smaller one"):
        experiment(monkeypatch).audit()


def test_every_position_is_tried_however_few_neighbours_are_asked_for(monkeypatch):
    run = experiment(monkeypatch, neighbours=1)
    positions = {line.position for line in run.calibrate().mechanism.ledger.lines}
    assert run.audit()["neighbours"].max() == len(positions) > 1


STEP = {
    "training": {"rounds": 1, "local_steps": 1, "local_aggregation": None, "batch_size": None},
    "privacy": {"mechanism": "upload", "calibration": "multiplier", "noise_multiplier": 0.01},
    "model": {"name": "dense"},
    "partition": {"scheme": "iid"},
    "attack": {"method": "analytic", "observer": "far_devices", "messages": 1},
}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"algorithm": "ldp", "topology": {"fanouts": [2, 2]}}, "far_devices"),
        # All are below the cloud, whose noise is the only one.
        ({"algorithm": "cdp", "topology": {"fanouts": [2, 2]}}, "cousins"),
    ],
)
def test_epsilon_beside_an_attack_is_that_of_whoever_is_elsewhere(changes, line):
    experiment = Experiment.from_config(load_config(STEP, changes))
    ledger = experiment.calibrate().mechanism.ledger
    worst = max(ledger.epsilon(each, 1) for each in ledger.lines if each.kind == line)
    told = experiment.attack().record["metrics"]["epsilon"]
    assert isfinite(worst) and told == pytest.approx(worst)
