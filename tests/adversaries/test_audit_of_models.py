"""The audit where models are bounded themselves (`weights`)."""

from dataclasses import replace

import pytest
from tests.adversaries.copies import bounds_of, noise_of, with_noise

from m2fdp.adversaries.audit import audited_lines
from m2fdp.core.privacy.ledger import Ledger

WEIGHTS = {"mechanism": "weights", "local_aggregation": {1: 2}}
PAPER = WEIGHTS | {"calibration": "paper", "epsilon": 1.0}
ACCOUNTANT = WEIGHTS | {"epsilon": 8.0}


@pytest.fixture(scope="module")
def system(make_system):
    """Two edge servers with three devices each, nobody of them trusted, unless told otherwise."""

    def make(**options):
        return make_system(**({"untrusted": ("server-1-0", "server-1-1")} | options))

    return make


def test_the_papers_noise_is_worth_more_than_its_nominal_epsilon(system):
    """Nominal 1: five hundred copies of each world can show 5.8 at most, and do show 4."""
    (found,) = system(**PAPER).audit(500)
    assert found.epsilon_nominal == 1
    assert found.epsilon_lower >= 4
    assert found.epsilon_lower <= found.epsilon_upper
    assert found.releases == 2 * 3


# What the canary shows at least; a device without any data stays at what it received, so that it
# does not attain the worst case.
CASES = {
    "q = 0.5": ({}, 0.5),
    "q = 1": ({"rate": 1.0}, 0.7),
    "replace one": ({"rate": 1.0, "adjacency": "replace_one"}, 0.7),
    "device": ({"unit": "device"}, 0.0),
    "q = 0.1": ({"rate": 0.1}, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_accountants_noise_stays_below_the_ledger(system, name):
    # A false alarm in all five with probability at most 0.01.
    changes, least = CASES[name]
    (found,) = system(**ACCOUNTANT | changes).audit(400, confidence=1 - 0.01 / 10)
    assert least <= found.epsilon_lower <= found.epsilon_upper <= 8


def test_so_it_does_below_a_trusted_edge_server(system):
    (found,) = system(**ACCOUNTANT, untrusted=()).audit(400, confidence=0.998)
    assert 0 < found.epsilon_lower <= found.epsilon_upper <= 8
    assert found.releases == 3  # the cloud hears the rounds' ends


@pytest.mark.parametrize(
    "change",
    [
        lambda noise: dict(
            messages=tuple(of_layer / 4 for of_layer in noise.messages),
            local_messages=tuple(of_layer / 4 for of_layer in noise.local_messages),
        ),
        lambda noise: {"local_messages": tuple(x * 0 for x in noise.local_messages)},
        lambda noise: {"unit": "step"},  # a tenth of it
    ],
    ids=["a quarter of the noise", "none in local aggregations", "over the step size"],
)
def test_builds_with_less_noise_are_caught(system, change):
    run = system(**WEIGHTS, epsilon=2.0)
    canaries, line = run.plant(2 * 100)
    lower, upper = bounds_of(run, with_noise(canaries, **change(noise_of(canaries))), line)
    assert lower > upper


def test_a_build_that_believes_in_2c_over_m_is_caught(system):
    """Its ledger would say 1 or less of the paper's noise."""
    run = system(**PAPER)
    (line,) = audited_lines(run.mechanism.ledger, run.schedule.rounds)
    (account,) = line.account.counts
    believed = replace(
        account,
        local=(account.local[0] / 100, account.local[1]),
        total=(account.total[0] / 100, account.total[1]),
    )
    told = replace(line, account=replace(line.account, counts=(believed,)))
    ledger: Ledger = replace(run.mechanism.ledger, lines=(told,))
    assert ledger.epsilon(told, 3) <= 1
    (found,) = run.audit(100)
    assert found.epsilon_lower > ledger.epsilon(told, 3)
