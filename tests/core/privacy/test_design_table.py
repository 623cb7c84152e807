"""What J's noise is worth: the table of docs/privacy/proposition-1.md, printed and checked.

`pytest tests/core/privacy/test_design_table.py -s` prints it.
"""

from math import log, sqrt

import pytest
from tests.core.privacy.parts import mechanism_of, network_of, plans_of

from m2fdp.core.privacy.accounting import least_noise, subsampled

pytestmark = pytest.mark.full
DELTA, T, K = 1e-5, 200, 20
EVERY_5 = {1: 5}


def verified(fanouts, untrusted, local_aggregation, batch):
    """Epsilon at alpha = 1 and the alpha at which J's noise would meet epsilon = 1."""
    network, plans = network_of(fanouts, untrusted), plans_of(T, K, local_aggregation)
    ledger = mechanism_of(network, plans, batch=batch, alpha=1.0).ledger
    line = next(line for line in ledger.lines if line.kind in ledger.distrusted)
    spent, alpha = ledger.verified(T), least_noise(ledger.composition(line, T), 1.0, DELTA)
    print(f"{fanouts} {local_aggregation} B={batch}: ε {spent:.4g}, α* {alpha:.3g}")
    return spent, alpha


def edge_servers(n):
    return [f"server-1-{i}" for i in range(n)]


# DESIGN rounds to two digits where epsilon is below 1, so 2 % is taken of what it shows.
def close(shown):
    digits = len(str(shown).split(".")[1]) if "." in str(shown) else 0
    return pytest.approx(shown, rel=0.02, abs=0.51 * 10**-digits)


# By minibatch: epsilon, and the alpha that epsilon 1 would take.
TABLE = {
    "untrusted parent": (
        *([10, 5], edge_servers(10), EVERY_5),
        {8: (0.34, 0.38), 32: (0.33, 0.36), 64: (0.31, 0.34)},
    ),
    "cloud about a trusted branch, local aggregation": (
        *([10, 5], [], EVERY_5),
        {8: (51.4, 9.94), 32: (13.4, 8.67), 64: (10.4, 7.54)},
    ),
    "cloud about a trusted branch, none": (
        *([10, 5], [], {}),
        {8: (3.12, 2.55), 32: (2.43, 2.21), 64: (2.03, 1.89)},
    ),
    "25 children": ([2, 25], [], EVERY_5, {8: (1976,), 32: (250,), 64: (111,)}),
}


@pytest.mark.parametrize("batch", [8, 32, 64])
@pytest.mark.parametrize("case", TABLE)
def test_the_table(case, batch):
    *system, by_batch = TABLE[case]
    expected = by_batch[batch]
    assert verified(*system, batch)[: len(expected)] == tuple(map(close, expected))


@pytest.mark.parametrize(("batch", "alpha"), [(8, 1.22), (32, 1.11), (64, 1.11)])
def test_face_value(batch, alpha):
    """Prop. 1 read as it stands: K T subsampled releases, each of the sensitivity Delta."""
    q = batch / 1200
    z = least_noise(((subsampled(q), K * T),), 1.0, DELTA)
    assert z / (q * sqrt(K * T * log(1 / DELTA))) == close(alpha)


def test_four_tiers():
    local = {3: 5, 2: 10}
    assert verified([2, 4, 4, 4], [], local, 32)[0] == close(60)
    untrusted = edge_servers(2) + [f"server-2-{i}" for i in range(8)]
    assert verified([2, 4, 4, 4], untrusted, local, 32)[0] == close(2.35)
