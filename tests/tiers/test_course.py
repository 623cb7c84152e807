"""The course of a run in tiers: who trains what, its seconds and joules, and smaller steps."""

import numpy as np
import pytest
import torch

from m2fdp import load_config
from m2fdp.core.config import ModelConfig
from m2fdp.core.engine.training import RoundRecord
from m2fdp.tiers.clock import counted_costs, resnet_costs
from m2fdp.tiers.config import PlateauConfig
from m2fdp.tiers.course import plan_course, reductions
from m2fdp.tiers.ways import DTFL, FEDAVG, FEDGKT, SPLITFED

SIZES = np.full(10, 5000)
PRESENT = np.ones((3, 10), dtype=bool)


def course(way=DTFL, sizes=SIZES, present=PRESENT, **keys):
    config = load_config({"clock.noise": 0.0, "clock.switch_every": None, **keys})
    return plan_course(config, way, resnet_costs(20, 4), sizes, present)


def test_d_s_round_at_the_start():
    """Bar 2 of D's clock: the second round, once times are known."""
    for way, seconds in ((DTFL, 38.6919), (FEDAVG, 128.498), (SPLITFED, 276.765)):
        assert course(way).costs[1].delay_s == pytest.approx(seconds, rel=1e-4)


def test_fedgkts_epochs_compute_and_send_nothing_more():
    """The slowest client's second epoch, by its FLOPs alone."""
    costs = resnet_costs(56, 16)
    fixed = course(FEDGKT)
    assert fixed.costs[1].delay_s == pytest.approx(124.310, rel=1e-4)
    assert (fixed.cuts == 1).all() and set(fixed.logged[1]) == {"round_s", "waiting_s"}
    twice = course(FEDGKT, **{"training.local_epochs": 2})
    epoch = 5000 * (costs.flops[0] + costs.small_flops) * (250 / 34) / 150e9
    assert twice.costs[0].delay_s - fixed.costs[0].delay_s == pytest.approx(epoch)


def test_cuts_are_those_of_the_tiers():
    planned = course()
    assert planned.cuts[0].tolist() == [1] * 10
    assert planned.cuts[1].tolist() == [7] * 6 + [1] * 4
    last = course(**{"tiering.tiers": 2, "tiering.schedule": "static", "tiering.static_tier": 1})
    assert (last.cuts == 6).all()
    assert (course(FEDAVG).cuts == 8).all() and (course(SPLITFED).cuts == 8).all()


def test_metrics_of_a_round_tell_who_waits_for_whom():
    planned = course()
    logged = planned.logged[1]
    assert logged["round_s"] == logged["t_max_s"] == planned.costs[1].delay_s
    assert (logged["tier_1"], logged["tier_7"], logged["tier_4"]) == (4, 6, 0)
    assert 0 < logged["waiting_s"] < logged["round_s"]
    assert set(course(FEDAVG).logged[1]) == {"round_s", "waiting_s"}


def test_absent_clients_cost_nothing_and_have_no_tier():
    present = PRESENT.copy()
    present[:, 8:] = False  # the slowest
    planned = course(present=present)
    assert (planned.cuts[:, 8:] == -1).all() and (planned.cuts[:, :8] > 0).all()
    assert planned.costs[1].delay_s < course().costs[1].delay_s


def test_an_epoch_more_computes_and_sends_activations_once_more():
    """FedAvg's second epoch costs the slowest client what it computes: 0.1 CPU is 7.35 times 1."""
    one, two = course(FEDAVG), course(FEDAVG, **{"training.local_epochs": 2})
    computing = 5000 * resnet_costs(56, 16).flops.sum() * (250 / 34) / 150e9
    assert two.costs[0].delay_s - one.costs[0].delay_s == pytest.approx(computing)


def test_energy_of_fedavg_by_hand():
    """Ten radios of 24 dBm send the model twice, and 500 steps of a millijoule each."""
    planned = course(FEDAVG, **{"training.batch_size": 100})
    costs = resnet_costs(56, 16)
    numbers = costs.numbers.sum()
    rates = np.repeat([100, 30, 30, 30, 10], 2) * 2**20
    seconds = (2 * 4 * numbers / rates).sum()
    expected = 10 ** (-0.6) * seconds + 500 * 1e-3
    assert planned.costs[0].energy_j == pytest.approx(expected)


def test_the_trained_models_own_times():
    """A model of other widths has other FLOPs, and the trained one's own images."""
    costs = counted_costs(ModelConfig(name="resnet", width=8, stem_stride=2), (1, 28, 28), 10)
    config = load_config({"clock.noise": 0.0, "clock.model": "trained"})
    planned = plan_course(config, FEDAVG, costs, SIZES, PRESENT)
    computing = 5000 * costs.flops.sum() * (250 / 34) / 150e9
    sending = 8 * costs.numbers.sum() / (10 * 2**20)
    assert planned.costs[0].delay_s == pytest.approx(computing + sending)


@pytest.mark.parametrize("seed", range(5))
def test_a_plateau_reduces_steps_when_torchs_own_scheduler_does(monkeypatch, seed):
    monkeypatch.setattr(PlateauConfig, "patience", 3)
    monkeypatch.setattr(PlateauConfig, "threshold", 1e-3)
    rng = np.random.default_rng(seed)
    accuracies = np.round(0.5 + np.cumsum(rng.normal(0, 0.01, 60)), 3)
    plateau = PlateauConfig(factor=0.5)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, "max", factor=0.5, patience=3, threshold=1e-3, min_lr=0, eps=0
    )
    records = []
    for number, accuracy in enumerate(accuracies.tolist(), start=1):
        records.append(RoundRecord(number, accuracy, 1.0, 0.0, 0.0, float("nan")))
        theirs.step(accuracy)
        expected = optimizer.param_groups[0]["lr"]
        assert 0.5 ** reductions(records, plateau) == expected
    assert expected < 1
