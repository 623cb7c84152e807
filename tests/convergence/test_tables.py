"""The tables of the bounds, row by row against single calls."""

from math import inf

import numpy as np
import pandas as pd
import pytest
from tests.convergence.settings import mechanism_of, network_of

from m2fdp.convergence.bound import network_terms, theorem_1
from m2fdp.convergence.descent import RoundNoise, descent_bound
from m2fdp.convergence.run import (
    bound_summary,
    bound_table,
    broken_assumptions,
    estimate_constants,
    layer_table,
)
from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.calibration import no_privacy
from m2fdp.core.schedule.schedule import Schedule

SCHEDULE = Schedule(6, 3, {}, 0.5, "inverse_sqrt")
PRIVACY = PrivacyConfig(
    mechanism="upload", calibration="paper", epsilon=2, delta=1e-5, clipping_norm=0.7
)
# w^(1), and after rounds 2, 4 and 6.
MEASURED = pd.DataFrame(
    {
        "round": [0, 2, 4, 6],
        "loss": [2.0, 1.5, 1.6, 1.1],
        "gradient_norm_sq": [1.0, 0.5, 0.25, 0.125],
        "smoothness": [1.0, 4.0, 4.0, 5.0],
        "largest_gradient": [3.0, 2.0, 2.5, 1.0],
        "gradient_variance": [0.1, 0.3, 0.2, 0.1],
    }
)


@pytest.fixture
def network():
    return network_of([4, 5], [0.5])


def silent(network):
    return no_privacy(network, SCHEDULE.round_plans(), PRIVACY, ThreatConfig())


def test_constants_are_the_largest_seen_or_the_configured(network):
    mechanism = mechanism_of(network, SCHEDULE, PRIVACY)
    constants = estimate_constants(MEASURED, mechanism, SCHEDULE, PRIVACY, 640, 0.25)
    assert (constants.smoothness, constants.gradient_variance) == (5.0, 0.3)
    assert (constants.gradient_norm, constants.epsilon, constants.delta) == (0.7, 2, 1e-5)
    assert (constants.n_parameters, constants.local_steps) == (640, 3)
    assert constants.sampling_rate == 0.25
    without = estimate_constants(MEASURED, silent(network), SCHEDULE, PRIVACY, 640, 0.25)
    assert (without.gradient_norm, without.epsilon) == (3.0, inf)


@pytest.mark.parametrize("smoothness", [0.0, None])
def test_without_a_change_of_gradients_there_is_no_beta(network, smoothness):
    measured = MEASURED.assign(smoothness=pd.Series([smoothness] * 4, dtype=float))
    with pytest.raises(InputError, match="training.rounds = 6.*beta can't be estimated"):
        estimate_constants(measured, silent(network), SCHEDULE, PRIVACY, 640, 0.25)


def test_every_row_is_the_bounds_at_its_round(network):
    constants = estimate_constants(MEASURED, silent(network), SCHEDULE, PRIVACY, 640, 0.25)
    terms, noise = network_terms(network, [1, 1]), RoundNoise(2.0, 3.0)
    table = bound_table(MEASURED, terms, constants, noise, SCHEDULE)
    assert table["round"].tolist() == [2, 4, 6]
    for row, drop in zip(table.to_dict("records"), (0.5, 0.4, 0.9), strict=True):
        rounds = row["round"]
        printed = theorem_1(terms, constants, rounds, drop)
        steps = np.array([SCHEDULE.step_size(t) for t in range(1, rounds + 1)])
        proven = descent_bound(constants, noise, steps, np.full(rounds, drop))
        for prefix, bound in (("", printed), ("proven_", proven)):
            for name in ("a1", "a2", "b"):
                value = np.atleast_1d(getattr(bound, name))[-1]
                assert row[f"{prefix}{name}"] == pytest.approx(value)
            assert row[f"{prefix}bound"] == pytest.approx(np.atleast_1d(bound.total)[-1])
    # Means over w^(1), w^(3), w^(5), the models at the start of rounds 1, 3 and 5.
    assert table["mean_gradient_norm_sq"].tolist() == pytest.approx([1, 0.75, 1.75 / 3])
    eta = [SCHEDULE.step_size(t) for t in (1, 3, 5)]
    weighted = (eta[0] * 1 + eta[1] * 0.5 + eta[2] * 0.25) / sum(eta)
    assert table["weighted_gradient_norm_sq"].iloc[-1] == pytest.approx(weighted)
    assert table["gradient_norm_sq"].tolist() == [0.5, 0.25, 0.125]
    assert table["loss"].tolist() == [1.5, 1.6, 1.1]


def test_a_row_a_layer(network):
    """p_1 = 1/2, s_1 = 5: see test_bound."""
    terms = network_terms(network, [2, 3])
    table = layer_table(network, terms)
    assert table["layer"].tolist() == [1, 2]
    assert table["fanout"].iloc[0] == 5
    assert table["fanout"].isna().tolist() == [False, True]
    assert table["p_min"].tolist() == table["p_max"].tolist() == [0.5, 1]
    assert table["weight"].tolist() == [1, 0.25]
    np.testing.assert_allclose(table[["A", "B", "C"]], [[0.08, 0.08, 0.9], [9, 0, 9]])
    assert table["summand"].sum() == pytest.approx(5.56)


def summary_of(network, gamma, law, largest_gradient):
    mechanism = mechanism_of(network, SCHEDULE, PRIVACY)
    schedule = Schedule(6, 3, {}, gamma, law)
    measured = MEASURED.assign(largest_gradient=largest_gradient)
    constants = estimate_constants(measured, mechanism, schedule, PRIVACY, 640, 0.25)
    noise = RoundNoise(2.0, 3.0)
    return bound_summary(measured, constants, noise, mechanism, network, schedule, 1.0)


def test_a_summary_says_what_is_estimated_and_what_corollary_1_gives(network):
    """beta = 5 and T = 6 > K, so gamma <= 1/30. p_1 = 1/2, s_1 = 5: 0.5/25 and 0.5/5."""
    summary = summary_of(network, 0.03, "inverse_sqrt", 0.5)
    assert broken_assumptions(summary) == []
    assert summary["estimated"] == ["smoothness", "gradient_variance"]
    assert summary["step_size"]["largest_gamma"] == pytest.approx(1 / 30)
    factor = 8 * 2 * 640 * 3**4 * 0.25**2 * np.log(1e5) / 4
    assert summary["corollary_1"]["own"] == pytest.approx(factor * 0.02)
    assert summary["corollary_1"]["passed_on"] == pytest.approx(factor * 0.1)
    assert summary["noise_of_proven_b"] == {"arriving": 2.0, "gathered": 3.0}


def test_broken_assumptions_are_named(network):
    for gamma, law in ((0.04, "inverse_sqrt"), (0.03, "constant")):
        (sentence,) = broken_assumptions(summary_of(network, gamma, law, 0.5))
        assert f"<= 0.0333; this run takes {gamma} ({law})" in sentence
    (sentence,) = broken_assumptions(summary_of(network, 0.03, "inverse_sqrt", 0.75))
    assert "clipping changes no gradient; devices' gradients reach 0.75 against G = 0.7" in sentence
