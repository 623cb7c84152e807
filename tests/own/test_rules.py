"""Clip factors of an algorithm's own: what each norm meets, and what is refused."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.core.engine.test_backends import problem, sums

from m2fdp.core.engine.backends import build_backend
from m2fdp.core.engine.clipping import clip_rows
from m2fdp.core.engine.rules import Rules, flat_clip
from m2fdp.core.errors import InputError
from m2fdp.own.rules import OneByOne, checked_rules


def by_the_largest(norms, clipping_norm):
    return clipping_norm / norms.max()


def many_only(norms, clipping_norm):
    if norms.numel() > 2000:
        return torch.ones_like(norms)
    return flat_clip(norms, clipping_norm)


def kept(factor):
    """As an algorithm's rules keep it."""
    return Rules(clip_factor=factor).clip_factor


def test_this_package_s_own_stays_as_it_is_and_another_is_wrapped_once():
    assert kept(flat_clip) is flat_clip
    rules = Rules(clip_factor=by_the_largest)
    assert replace(rules).clip_factor == rules.clip_factor == OneByOne(by_the_largest)
    assert pickle.loads(pickle.dumps(rules)) == rules


@pytest.mark.parametrize("name", ["softmax", "cnn12", "free parameter", "own plain"])
def test_a_record_moves_no_other_record_s_factor(name):
    """Of 30 records of one learner, one grows a hundredfold and then counts nothing: the sum moves
    by its own clipped gradient alone, on every backend."""
    model, weights, batches = problem(name, [30], 2)
    batches.weights[:-1] = 1.0
    batches.features[batches.positions[3]] *= 100
    clean = replace(batches, weights=batches.weights.copy(), features=batches.features.clone())
    clean.weights[3] = 0.0
    clean.features[batches.positions[3]] /= 100
    for way in ("reference", "sequential", "stacked", "auto"):
        law = np.array([30.0]), np.array([0.0])
        backend = build_backend(model, way, law, torch.device("cpu"), kept(by_the_largest))
        moved = sums(backend, weights, batches, 0.1) - sums(backend, weights, clean, 0.1)
        assert moved.norm() <= 0.1 * (1 + 1e-5)


@pytest.mark.parametrize("n_rows", [3, 3000])
def test_however_many_norms_there_are_each_is_clipped(n_rows):
    rows = 5.0 * torch.randn(n_rows, 4, generator=torch.Generator().manual_seed(0))
    clipped = clip_rows(rows.clone(), 1.0, kept(many_only))
    torch.testing.assert_close(clipped, clip_rows(rows.clone(), 1.0, flat_clip))
    # The updates of one device are no other's business either.
    first = clip_rows(rows.clone(), 1.0, kept(by_the_largest))[0]
    rows[1:] *= 100
    torch.testing.assert_close(clip_rows(rows, 1.0, kept(by_the_largest))[0], first)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1.0, 1e30])
def test_whatever_a_factor_is_no_norm_times_it_is_above_the_bound(value):
    """Nor where a norm is computed as zero because its squares vanish."""
    factor = kept(lambda norms, clipping_norm: torch.full_like(norms, value))
    norms = torch.tensor([0.0, 1e-30, 1e-12, 0.5, 2.0, 1e30])
    factors = factor(norms, 3.0)
    assert factors.isfinite().all() and (factors >= 0).all()
    assert (factors * norms <= 3.0 * (1 + 1e-6)).all()
    assert bool(factors.any()) == (0 < value < float("inf"))
    vanishing = torch.full((1, 100), 1e-23)
    assert not vanishing.norm()
    assert clip_rows(vanishing, 3.0, factor).double().norm() <= 3.0
    assert factor(norms[:0], 3.0).shape == (0,)


def if_large(norms, clipping_norm):
    return flat_clip(norms, clipping_norm) if norms > 1 else norms / norms


def with_numbers(norms, clipping_norm):
    return torch.tensor(min(1.0, clipping_norm / norms.item()))


def drawn(norms, clipping_norm):
    return flat_clip(norms, clipping_norm) * torch.rand_like(norms)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (if_large, "can't be vectorised over norms.*data-dependent control flow.*test_rules.py"),
        (with_numbers, r"can't be vectorised over norms.*\.item\(\)"),
        (drawn, "can't be vectorised over norms.*random"),
        (lambda norms, clipping_norm: 0.5, "can't be vectorised over norms.*must only return Ten"),
        (lambda norms, clipping_norm: norms.expand(2), "gives no factor a norm"),
    ],
)
def test_what_cannot_be_given_one_norm_at_a_time_is_one_line(factor, words):
    with pytest.raises(InputError, match=words) as refused:
        checked_rules(Rules(clip_factor=factor), "own", True)
    assert str(refused.value).startswith("algorithm = 'own': has a clip_factor that ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("factor", [flat_clip, by_the_largest, many_only])
def test_what_each_norm_alone_makes_harmless_is_let_be(factor):
    checked_rules(Rules(clip_factor=factor), "own", True)
