"""Made-up sets, the trainer behind noise, and the rule that chooses."""

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch
from tools.choosing import ALONE, BEFORE, GRID, NOISES, accuracy, choice, means
from tools.made_up import CLASSES, SETS, bodies

from tools import choosing


@pytest.mark.parametrize("name", SETS)
def test_sets_are_always_the_same_and_have_ten_classes(name):
    images, labels = SETS[name](60)
    assert images.shape == (60, 3, 32, 32) and images.dtype == np.float32
    assert 0 <= images.min() < images.max() <= 1
    assert set(labels) == set(range(CLASSES))
    again, _ = SETS[name](60)
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
    assert accuracy(inputs, labels, BEFORE, 0) == 1
    assert accuracy(inputs, labels, BEFORE, 1) == 1
    assert accuracy(inputs, labels, BEFORE, 10_000_000) < 0.9


@pytest.mark.parametrize(
    ("rise", "clipping_norm"), [(0.0031, 0.15), (0.0029, BEFORE.clipping_norm)]
)
def test_the_rule_takes_the_best_of_the_grid_and_what_rises_by_enough(rise, clipping_norm):
    best = replace(BEFORE, dimension=500, ridge=0.01)
    raised = replace(BEFORE, clipping_norm=0.15)
    values = dict.fromkeys((*GRID, *ALONE), 0.5) | {BEFORE: 0.6, best: 0.601, raised: 0.6 + rise}
    table = pd.DataFrame(
        {"set": name, **asdict(setting), **dict.fromkeys((f"noises_{n}" for n in NOISES), value)}
        for name in "ab"
        for setting, value in values.items()
    )
    assert choice(means(table)) == replace(best, clipping_norm=clipping_norm)
