"""A small privacy ledger."""

from math import inf

import pandas as pd
import pytest


@pytest.fixture
def ledger():
    """Three positions, two of one name, as `ledger_table` gives them."""
    positions = [("below a server", 2, 3.0), ("below a server", 3, 7.0), ("alone", 1, 1.2345)]
    return pd.DataFrame(
        {
            "position": position,
            "devices": devices,
            "observer": observer,
            "kind": kind,
            "distrusted": kind == "cloud",
            "releases": 1200,
            "noise": 2.5 if kind == "cloud" else 0.0,
            "epsilon": spent if kind == "cloud" else inf,
            "delta": 1e-5,
            "adjacency": "add_remove",
        }
        for position, devices, spent in positions
        for observer, kind in (("the cloud", "cloud"), ("siblings", "siblings"))
    )
