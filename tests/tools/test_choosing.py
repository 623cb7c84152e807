"""Made-up sets, the trainer behind noise, and the rules that choose."""

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch
from tools.choosing import KINDS, NOISES, accuracy, choice, chosen_insides, inside_rows, means
from tools.made_up import CLASSES, GREY_SETS, SETS, bodies

from m2fdp.features.maps import WaveSettings
from tools import choosing

REGIME = KINDS["colour"].regimes["many"]
BEFORE = REGIME.before
SHAPES = dict.fromkeys(SETS, (3, 32, 32)) | dict.fromkeys(GREY_SETS, (1, 28, 28))


@pytest.mark.parametrize("name", SHAPES)
def test_sets_are_always_the_same_and_have_ten_classes(name):
    make = (SETS | GREY_SETS)[name]
    images, labels = make(60)
    assert images.shape == (60, *SHAPES[name]) and images.dtype == np.float32
    assert 0 <= images.min() < images.max() <= 1
    assert set(labels) == set(range(CLASSES))
    again, _ = make(60)
    same = np.array_equal(images, again)
    assert same


def test_members_are_alike_where_classes_differ_and_nothing_jitters():
    images, labels = bodies(7, 200, shape=0, texture=0, colour=3, context=3, jitter=0)
    colours = images.mean(axis=(2, 3))
    within = np.mean([colours[labels == each].std(axis=0) for each in range(CLASSES)])
    assert within < colours.std(axis=0).mean() / 1.5


def test_accuracy_falls_with_noise_and_is_one_where_classes_are_apart(monkeypatch):
    monkeypatch.setattr(choosing, "_N_TRAIN", 300)
    labels = torch.arange(400) % CLASSES
    inputs = torch.eye(CLASSES)[labels]
    assert accuracy(inputs, labels, BEFORE, 0, 50_000) == 1
    assert accuracy(inputs, labels, BEFORE, 1, 50_000) == 1
    assert accuracy(inputs, labels, BEFORE, 10_000_000, 50_000) < 0.9


@pytest.mark.parametrize(
    ("rise", "clipping_norm"), [(0.0031, 0.15), (0.0029, BEFORE.clipping_norm)]
)
def test_the_rule_takes_the_best_of_the_grid_and_what_rises_by_enough(rise, clipping_norm):
    best = replace(BEFORE, dimension=500, ridge=0.01)
    raised = replace(BEFORE, clipping_norm=0.15)
    values = dict.fromkeys(REGIME.settings, 0.5)
    values |= {BEFORE: 0.6, best: 0.601, raised: 0.6 + rise}
    table = pd.DataFrame(
        {"set": name, **asdict(setting), **dict.fromkeys((f"noises_{n}" for n in NOISES), value)}
        for name in "ab"
        for setting, value in values.items()
    )
    averaged = means(table, list(asdict(BEFORE)))
    assert choice(averaged, REGIME) == replace(best, clipping_norm=clipping_norm)


@pytest.mark.parametrize("kind", KINDS)
def test_every_inside_takes_its_best_value_and_what_starts_best_stays(kind):
    of_kind = KINDS[kind]
    tried, wider = of_kind.insides(), replace(of_kind.start[0], spread=0.7)
    fewer = of_kind.patches[-1][0]
    values = dict.fromkeys(tried, 0.5) | {str(wider): 0.6, str(fewer): 0.55}
    table = pd.DataFrame(
        {"insides": name, **dict.fromkeys((f"noises_{n}" for n in NOISES), value)}
        for name, value in values.items()
    )
    chosen = chosen_insides(means(table, ["insides"]), of_kind)
    assert chosen == (wider, replace(of_kind.start[1], **fewer))
    assert len({*tried.values()}) == len(tried)


def test_insides_are_compared_on_every_set_with_one_value_changed(monkeypatch):
    monkeypatch.setattr(choosing, "_N_TRAIN", 30)
    monkeypatch.setattr(choosing, "_N_TEST", 20)
    monkeypatch.setattr(choosing, "N_PUBLIC", 60)
    few = replace(BEFORE, dimension=20)
    kind = replace(
        KINDS["grey"],
        sets={"writing": GREY_SETS["writing"]},
        n_drawn=50,
        regimes={"few": replace(REGIME, before=few), "fewer": replace(REGIME, before=few)},
        waves=(WaveSettings(5, 0.5), WaveSettings(7, 0.7)),
        patches=(({"ridge": 1.0},),),
    )
    rows = pd.DataFrame(inside_rows(kind))
    names = ["start", str(kind.waves[0]), str(kind.waves[1]), "{'ridge': 1.0}"]
    assert rows["insides"].tolist() == [name for name in names for _ in range(2)]
    assert rows["regime"].tolist() == ["few", "fewer"] * 4
    assert rows["noises_1"].between(0.1, 1).all()
