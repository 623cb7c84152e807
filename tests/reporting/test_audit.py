"""An audit's bounds in the terminal and as a figure: no bound is rounded to look better."""

import warnings
from io import BytesIO

import pandas as pd
import pytest
from tests.reporting.printing import printed, words

from m2fdp.reporting.figures import audit_bounds
from m2fdp.reporting.room_figures import print_audit


@pytest.fixture
def bounds():
    return pd.DataFrame(
        {
            "position": ["below an untrusted parent", "below a trusted server"],
            "observer": ["untrusted servers", "the cloud"],
            "epsilon_lower": [0.0, 1.9999],
            "epsilon_upper": [0.3331, 36.9001],
            "epsilon_nominal": [1.0, 1.0],
            "largest_lower": [4.9069, 4.9069],
            "delta": 1e-5,
            "confidence": 0.95,
            "rounds": 10,
            "releases": [40, 10],
            "repetitions": 1000,
        }
    )


def test_the_table_says_what_an_audit_can_show_and_what_it_has_refuted(bounds):
    said = words(printed(print_audit, bounds, width=120))
    for shown in ("0.334", "37.0", "1.99", "95% confidence", "none can pass 4.90", "T = 10"):
        assert shown in said
    caught = {"epsilon_lower": 40.0, "repetitions": 50}
    refuted = bounds.assign(**{key: [bounds[key][0], caught[key]] for key in caught})
    said = words(printed(print_audit, refuted, width=120))
    assert "The promise against the cloud is REFUTED" in said
    assert "untrusted servers is" not in said
    assert "with 1,000 copies of each world none can pass 4.90" in said
    assert " 50 " in said


def test_three_bars_an_observer(bounds):
    figure = audit_bounds(bounds)
    (axes,) = figure.axes
    with warnings.catch_warnings(action="error"):  # such as of a figure without room for its axes
        figure.savefig(BytesIO())
    widths = [bar.get_width() for bars in axes.containers for bar in bars]
    columns = ("epsilon_lower", "epsilon_upper", "epsilon_nominal")
    assert widths == [value for column in columns for value in bounds[column]]
    texts = [text.get_text().strip() for text in axes.texts]
    assert texts == ["0", "1.99", "0.334", "37.0", "1", "1"]
