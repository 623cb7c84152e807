"""The bound of the mean model: its sums, and quadratic losses on which it is known what happens."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.convergence.mean_descent import (
    Landscape,
    RoundSpread,
    StepSums,
    carried,
    parted,
    raised,
    sample_variance,
)


@given(st.integers(1, 30), st.floats(0, 5), st.floats(0, 5), st.floats(0, 5))
def test_a_rounds_sums_are_those_of_its_steps(steps, at_once, step, local):
    """Models have parted by k steps, and hold k steps' noise; local aggregations may have come."""
    k = np.arange(steps)
    assert parted(np.array(steps), at_once) == pytest.approx((k**2 * at_once).sum())
    held = np.where(k > 0, k * step + local, 0.0)
    assert carried(np.array(steps), step, local) == pytest.approx(held.sum())


@given(st.integers(1, 6), st.data())
def test_a_samples_variance_is_that_over_all_samples(n, data):
    s = data.draw(st.integers(1, n))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    gradients = rng.normal(size=(n, 3))
    apart = ((gradients - gradients.mean(axis=0)) ** 2).sum(axis=1).mean()
    means = [gradients[list(chosen)].mean(axis=0) for chosen in combinations(range(n), s)]
    variance = ((np.array(means) - gradients.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert sample_variance(np.array(s), np.array(n), apart**0.5) == pytest.approx(
        variance, abs=1e-12
    )


def test_sums_of_step_sizes():
    sums = StepSums(20)
    eta = 1 / np.sqrt(np.arange(4, 9) + 1)  # rounds 4…8
    found = sums.over(3, np.array([8, 3]))
    assert found[:, 0] == pytest.approx([eta.sum(), (eta**2).sum(), (eta**3).sum()])
    assert found[:, 1] == pytest.approx([0, 0, 0])


def test_noise_alone_is_priced_exactly():
    """F = beta/2 ||w||², eta = 1/beta: every step forgets all but its noise, and ||grad F||² is
    what it drew, M s^2."""
    beta, m, variance, rounds = 3.0, 5, 0.7, 10
    landscape = Landscape(beta, 0.0, 0.0, beta)
    eta = 1 / landscape.smoothness
    spread = RoundSpread(0.0, 0.0, 0.0, m * variance)
    lost = raised(landscape, spread, rounds * eta**2, rounds * eta**3)
    assert 2 * lost / (rounds * eta) == pytest.approx(m * variance)


def quadratics(seed, n, m):
    """Devices' losses (w - c)'H(w - c)/2, their mean, and its least value."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(n, m, m)) * rng.uniform(0.1, 1, size=(n, 1, m))
    curvatures = roots @ roots.transpose(0, 2, 1) / m
    centers = rng.normal(size=(n, m))
    mean = curvatures.mean(axis=0)
    best = np.linalg.solve(mean, np.einsum("nij,nj->i", curvatures, centers) / n)

    def loss(w):
        apart = w - centers
        return np.einsum("ni,nij,nj->", apart, curvatures, apart) / (2 * n)

    def gradients(w):
        return np.einsum("nij,...nj->...ni", curvatures, w - centers)

    return SimpleNamespace(
        n=n,
        m=m,
        gradients=gradients,
        of_mean=lambda w: (w - best) @ mean,
        beta=max(np.linalg.eigvalsh(h).max() for h in curvatures),
        kappa=max(np.trace(h) for h in curvatures) / m,
        drop=loss(np.zeros(m)) - loss(best),
    )


@pytest.mark.parametrize("local_steps", [1, 2, 5])
@pytest.mark.parametrize("taking_part", [4, 2])
@pytest.mark.parametrize("deviation", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("part", [1.0, 0.3])
def test_the_mean_of_all_models_keeps_to_the_bound(local_steps, taking_part, deviation, part):
    """400 runs of six rounds, of which s of four devices that step alone take part in each: the
    mean over the runs passes the bound by chance once in 10,000 (four standard errors)."""
    losses, rounds, runs = quadratics(local_steps, 4, 3), 6, 400
    rng = np.random.default_rng(7)
    eta = part / losses.beta
    w, zeta_sq, squares = np.zeros((runs, losses.m)), 0.0, []
    for _ in range(rounds):
        models = np.repeat(w[:, None], losses.n, axis=1)
        for _ in range(local_steps):
            squares.append((losses.of_mean(models.mean(axis=1)) ** 2).sum(axis=1))
            gradients = losses.gradients(models)
            apart = gradients - gradients.mean(axis=1, keepdims=True)
            zeta_sq = max(zeta_sq, (apart**2).sum(axis=2).mean(axis=1).max())
            noise = deviation * rng.normal(size=gradients.shape)
            models = models - eta * (gradients + noise)
        chosen = rng.permuted(np.tile(np.arange(losses.n), (runs, 1)), axis=1)[:, :taking_part]
        w = models[np.arange(runs)[:, None], chosen].mean(axis=1)
    of_run = np.mean(squares, axis=0)
    measured = of_run.mean() - 4 * of_run.std() / runs**0.5
    step = losses.m * deviation**2 / taking_part
    spread = RoundSpread(
        parted(np.array(local_steps), zeta_sq),
        carried(np.array(local_steps), step, 0.0),
        local_steps**2 * sample_variance(np.array(taking_part), np.array(4), zeta_sq**0.5),
        local_steps * step,
    )
    landscape = Landscape(losses.beta, zeta_sq**0.5, losses.drop, losses.kappa)
    lost = losses.drop + raised(landscape, spread, rounds * eta**2, rounds * eta**3)
    assert measured <= 2 * lost / (rounds * local_steps * eta)
