"""Theorem 1 and Corollary 1: worked by hand, and against eq. 20 written out sum by sum."""

from math import inf, log, prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.convergence.settings import network_of

from m2fdp.convergence.bound import (
    Constants,
    TrustShares,
    corollary_1,
    largest_step_parameter,
    layer_terms,
    network_terms,
    noise_factor,
    theorem_1,
    trust_shares,
)
from m2fdp.convergence.descent import RoundNoise, descent_bound
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.trust import explicit_trust
from m2fdp.given.edges import tree_from_edges

# Fan-outs, shares of trusted servers and alphas; weights, A, B, C and their sum.
BY_HAND = {
    # p_1 = 1/2, s_1 = 5, alpha = (2, 3).
    # l = 1: A = 1/2 · 4/25 = 0.08; B has m = 1 only, so 0.08 again; C = 1/2 · 9/5 = 0.9.
    # l = 2: A = 1 · 9 = 9; B is an empty sum; C = 9. Weights (1 - 0)^2 = 1 and (1 - 1/2)^2 = 1/4.
    # Sum: 1 · 1.06 + 1/4 · 18 = 5.56.
    "two layers": (
        *([10, 5], [0.5], [2, 3]),
        *([1, 0.25], [0.08, 9], [0.08, 0], [0.9, 9], 5.56),
    ),
    # p_1 = 1/2, p_2 = 1/4, s_1 = 4, s_2 = 2, alpha = (1, 2, 3).
    # l = 3: A = C = 9, B = 0, weight (3/4)^2 = 9/16: 10.125.
    # l = 2: A = 1/4 · 4/4 = 0.25; B = 0.25; C = 3/4 · 9/2 = 3.375; weight 1/4: 0.96875.
    # l = 1: A = 1/2 · 1/64 = 0.0078125; B = 0.0078125 [m = 1] + 1/2 · 1/4 · 4/(4 · 4) [m = 2]
    #        = 0.0390625; C = 1/2 · 3/4 · 9/8 = 0.421875; weight 1: 0.46875.
    "three layers": (
        *([2, 4, 2], [0.5, 0.25], [1, 2, 3], [1, 0.25, 0.5625], [0.0078125, 0.25, 9]),
        *([0.0390625, 0.25, 0], [0.421875, 3.375, 9], 0.46875 + 0.96875 + 10.125),
    ),
    "a star has no products": ([7], [], [3], [1], [9], [0], [9], 18),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_terms_by_hand(case):
    fanouts, ratios, alphas, weights, a, b, c, total = BY_HAND[case]
    terms = network_terms(network_of(fanouts, ratios), alphas)
    assert list(terms.weights) == weights
    for found, expected in ((terms.a, a), (terms.b, b), (terms.c, c), ([terms.total], [total])):
        assert [float(entry) for entry in found] == pytest.approx(expected)


def test_shares_of_an_uneven_tree():
    """The cloud has A and B; A is trusted. B has four children, one of them trusted."""
    edges = [("c", "A"), ("c", "B"), ("A", "a"), *(("B", f"b{i}") for i in range(4))]
    edges += [(parent, f"{parent}.0") for parent in ("a", "b0", "b1", "b2", "b3")]
    tree = tree_from_edges(edges)
    trust = explicit_trust(tree, ["B", "b1", "b2", "b3"])
    shares = trust_shares(tree, trust)
    # Layer 2 counts B's children only: A's parent is trusted.
    assert shares == TrustShares((0, 0.5, 0.25, 1), (0, 0.5, 0.25, 1))
    # Without untrusted parents a layer's share is 1.
    assert trust_shares(tree, explicit_trust(tree, [])) == TrustShares((0, 1, 1, 1), (0, 1, 1, 1))
    two = tree_from_fanouts([2, 2, 1])
    unlike = explicit_trust(two, ["server-1-0", "server-1-1", "server-2-0", "server-2-1"])
    assert trust_shares(two, unlike) == TrustShares((0, 0, 0, 1), (0, 0, 1, 1))


def test_fewer_participants_average_less():
    few, all_of_them = (
        network_terms(network_of([10, 5], [0.5], participants), [1, 1])
        for participants in (2, None)
    )
    assert float(few.a[0]) == pytest.approx(0.5 / 2**2)
    assert float(all_of_them.a[0]) == pytest.approx(0.5 / 5**2)


def literal(shares, fanouts, alphas):
    """J eq. 20 and the sum of eq. 19 (b), index by index; s[l], alpha[l], p[l] as printed."""
    depth = len(alphas)
    s, alpha = dict(enumerate(fanouts, start=1)), dict(enumerate(alphas, start=1))
    p_min, p_max = dict(enumerate(shares.smallest)), dict(enumerate(shares.largest))
    total, by_layer = 0.0, []
    for l in range(1, depth + 1):  # noqa: E741
        bottom = 1.0
        for below in range(l, depth - 1 + 1):
            bottom *= s[below] ** 2
        a = p_max[l] * alpha[l] ** 2 / bottom
        b = 0.0
        for m in range(l, depth - 1 + 1):
            top = 1.0
            for below in range(l, m - 1 + 1):
                top *= 1 - p_min[below]
            bottom = 1.0
            for below in range(l, m - 1 + 1):
                bottom *= s[below]
            for below in range(m, depth - 1 + 1):
                bottom *= s[below] ** 2
            b += top * p_max[m] * alpha[m] ** 2 / bottom
        top, bottom = 1.0, 1.0
        for below in range(l, depth - 1 + 1):
            top *= 1 - p_min[below]
            bottom *= s[below]
        c = top * alpha[depth] ** 2 / bottom
        by_layer.append((a, b, c))
        total += (1 - p_min[l - 1]) ** 2 * (a + b + c)
    return by_layer, total


@st.composite
def settings_of_eq_20(draw):
    depth = draw(st.integers(1, 6))
    pairs = draw(
        st.lists(
            st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
            min_size=depth - 1,
            max_size=depth - 1,
        )
    )
    shares = TrustShares(
        (0.0, *(low for low, _ in pairs), 1.0), (0.0, *(high for _, high in pairs), 1.0)
    )
    fanouts = draw(st.lists(st.integers(1, 9), min_size=depth - 1, max_size=depth - 1))
    return shares, fanouts, draw(st.lists(st.floats(0.1, 3), min_size=depth, max_size=depth))


@given(settings_of_eq_20())
def test_terms_are_eq_20_to_the_letter(setting):
    by_layer, total = literal(*setting)
    terms = layer_terms(*setting)
    for found, expected in zip(zip(terms.a, terms.b, terms.c, strict=True), by_layer, strict=True):
        assert [float(entry) for entry in found] == pytest.approx(expected, rel=1e-12, abs=1e-300)
    assert float(terms.total) == pytest.approx(total, rel=1e-12)


@given(settings_of_eq_20())
def test_arrays_of_fanouts_are_many_settings_at_once(setting):
    shares, fanouts, alphas = setting
    if not fanouts:
        return
    several = layer_terms(shares, [*fanouts[:-1], np.array([1, 2, 7])], alphas).total
    single = [float(layer_terms(shares, [*fanouts[:-1], s], alphas).total) for s in (1, 2, 7)]
    np.testing.assert_allclose(np.broadcast_to(several, 3), single, rtol=1e-12)


def proof_reading(shares, fanouts, alphas):
    """By layer: each noise once, as in the proofs of Lemma 2 and Corollary 1 (eqs 79-80, 60)."""
    depth = len(alphas)
    result = []
    for layer in range(1, depth + 1):
        noise = 0.0
        for m in range(layer, depth + 1):
            untrusted = prod(1 - share for share in shares.smallest[layer:m])
            averaged = prod(fanouts[layer - 1 : m - 1]) * prod(fanouts[m - 1 :]) ** 2
            noise += untrusted * shares.largest[m] * alphas[m - 1] ** 2 / averaged
        result.append((1 - shares.smallest[layer - 1]) ** 2 * noise)
    return result


@given(settings_of_eq_20())
def test_eq_20_is_the_proofs_sum_with_one_summand_twice(setting):
    terms = layer_terms(*setting)
    for printed, proven, weight, again in zip(
        terms.by_layer, proof_reading(*setting), terms.weights, terms.a, strict=True
    ):
        assert float(printed) == pytest.approx(proven + weight * float(again), rel=1e-9, abs=1e-300)
        assert proven * (1 - 1e-9) <= float(printed) <= 2 * proven * (1 + 1e-9)


@given(settings_of_eq_20(), st.data())
def test_corollary_1_bounds_all_but_the_layer_it_leaves_out(setting, data):
    shares, fanouts, alphas = setting
    depth = len(alphas)
    m = data.draw(st.integers(0, depth - 1))
    # All servers below layer m are trusted.
    least, largest = (
        (*group[: m + 1], *[1.0] * (depth - m)) for group in (shares.smallest, shares.largest)
    )
    assume(m == 0 or least[m] < 1)  # m is the last layer with untrusted servers
    shares = TrustShares(least, largest)
    proven = proof_reading(shares, fanouts, alphas)
    assert sum(corollary_1(shares, fanouts, alphas)) >= sum(proven[:m]) * (1 - 1e-9)
    assert sum(proven[m + 1 :]) == 0
    if m > 0:
        # What the corollary leaves out is not zero: layer m + 1 sends to untrusted servers.
        bottom = prod(fanouts[m:]) ** 2
        assert proven[m] == pytest.approx((1 - least[m]) ** 2 * alphas[m] ** 2 / bottom)


def test_corollary_1_for_two_layers_by_hand():
    """m = 1, p_1 = 1/2, s_1 = 5, alpha = (2, 3): 1/2 · 4/25 = 0.08 and 1/2 · 9/5 = 0.9."""
    own, passed_on = corollary_1(TrustShares((0, 0.5, 1), (0, 0.5, 1)), [5], [2, 3])
    assert own == pytest.approx(0.08)
    assert passed_on == pytest.approx(0.9)
    # For two layers it is exactly what the proof gives for l = 1.
    assert own + passed_on == pytest.approx(
        proof_reading(TrustShares((0, 0.5, 1), (0, 0.5, 1)), [5], [2, 3])[0]
    )


def test_corollary_1_grows_by_the_fanout_as_untrust_reaches_one_layer_down():
    """J after eq. 22: term (c) for m' is s_m' times that for m' - 1, at p = 0 down to m'."""
    fanouts, alphas = [3, 4, 5], [1.0] * 4
    c = [
        corollary_1(TrustShares(shares, shares), fanouts, alphas)[1]
        for shares in ((0, 0, 1, 1, 1), (0, 0, 0, 1, 1))
    ]
    # l = 1 alone: 1/(3·16·25) for m = 1; 1/(3·4·25) for m = 2, which also has l = 2: 1/(4·25).
    assert c[0] == pytest.approx(1 / (3 * 16 * 25))
    assert c[1] - 1 / (4 * 25) == pytest.approx(4 * c[0])


CONSTANTS = Constants(
    smoothness=2.0,
    gradient_norm=3.0,
    gradient_variance=0.5,
    n_parameters=10,
    local_steps=4,
    sampling_rate=0.1,
    epsilon=2.0,
    delta=0.01,
)


def test_theorem_1_by_hand():
    """T = 15, drop 0.8: a1 = 2·2/4·0.8 = 0.8; a2 = 4 (9·1.5 + 0.5)/15 = 56/15;
    b = 8·2·10·256·0.01·log(100)/4 · 5.56.
    """
    terms = layer_terms(TrustShares((0, 0.5, 1), (0, 0.5, 1)), [5], [2, 3])
    bound = theorem_1(terms, CONSTANTS, rounds=15, loss_drop=0.8)
    assert float(bound.a1) == pytest.approx(0.8)
    assert float(bound.a2) == pytest.approx(56 / 15)
    b = 8 * 2 * 10 * 256 * 0.01 * log(100) / 4 * 5.56
    assert float(bound.b) == pytest.approx(b)
    assert float(bound.total) == pytest.approx(0.8 + 56 / 15 + b)


def test_without_privacy_there_is_no_noise_term():
    assert noise_factor(2, 10, 4, 0.1, inf, 1e-5) == 0


@given(settings_of_eq_20(), st.integers(1, 500))
def test_noise_does_not_fade_with_rounds_and_the_rest_does(setting, rounds):
    bound = theorem_1(layer_terms(*setting), CONSTANTS, np.array([rounds, rounds + 1]), np.ones(2))
    assert bound.b[0] == bound.b[1] > 0
    assert bound.a1[0] > bound.a1[1]
    assert bound.a2[0] > bound.a2[1]


def quadratic_descent(beta, rounds):
    """One device, F(w) = beta w²/2, one exact step a round at Theorem 1's largest step size."""
    gamma = largest_step_parameter(beta, local_steps=1, rounds=rounds)
    steps = gamma / np.sqrt(np.arange(1, rounds + 1) + 1)
    weights = np.concatenate([[1.0], np.cumprod(1 - beta * steps)])
    return steps, (beta * weights[:-1]) ** 2, beta / 2 * (1 - weights[1:] ** 2)


def test_theorem_1_as_printed_fails_where_its_conditions_hold():
    """Steps of 1/(T beta sqrt(t+1)) sum up to 2/(beta sqrt(T)): the model stays where it is, but
    (a1) and (a2) vanish. Without noise the bound is over 1000 times too small at T = 10,000;
    what the proof's own steps give (`descent`) holds.
    """
    beta, rounds = 1.0, 10_000
    steps, norms, drop = quadratic_descent(beta, rounds)
    constants = Constants(beta, 1.0, 0.0, 1, 1, 1.0, inf, 1e-5)
    terms = layer_terms(TrustShares((0, 1), (0, 1)), [], [1.0])
    printed = theorem_1(terms, constants, rounds, drop[-1])
    assert norms.mean() > 1000 * float(printed.total)
    proven = descent_bound(constants, RoundNoise(0.0, 0.0), steps, drop).total
    weighted = np.cumsum(steps * norms) / np.cumsum(steps)
    assert (weighted <= proven).all()


def test_largest_step_parameter():
    assert largest_step_parameter(2.0, local_steps=5, rounds=4) == 1 / 10
    assert largest_step_parameter(2.0, local_steps=5, rounds=20) == 1 / 40
