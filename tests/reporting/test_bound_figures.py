"""The figure of the bounds shows its table."""

import io

import numpy as np
import pandas as pd
import pytest

from m2fdp.reporting.room_figures import convergence_bounds


@pytest.fixture
def table():
    rounds = np.arange(1, 6)
    columns = ("a1", "a2", "b", "bound")
    named = {name: 10.0 ** (i + 1) / rounds for i, name in enumerate(columns)}
    named |= {f"proven_{name}": 2 * values for name, values in named.items()}
    means = {name: 1 / rounds for name in ("mean_gradient_norm_sq", "weighted_gradient_norm_sq")}
    return pd.DataFrame({"round": rounds} | named | means)


def test_a_panel_a_bound_with_its_terms_and_what_it_bounds(table):
    table.loc[2, "a1"] = -1.0  # the loss has grown
    figure = convergence_bounds(table, "M²FDP, seed 0")
    printed, proven = figure.axes
    assert [text.get_text() for text in figure.legends[0].texts][-1] == "measured: mean ‖∇F‖²"
    for axes, prefix, mean in ((printed, "", "mean"), (proven, "proven_", "weighted")):
        columns = [f"{prefix}{name}" for name in ("a1", "a2", "b", "bound")]
        for line, column in zip(axes.lines, [*columns, f"{mean}_gradient_norm_sq"], strict=True):
            expected = table[column].where(table[column] > 0)
            np.testing.assert_array_equal(line.get_ydata(), expected)
    assert np.isnan(printed.lines[0].get_ydata()[2])


def test_bytes_are_reproducible(table):
    contents = []
    for _ in range(2):
        buffer = io.BytesIO()
        convergence_bounds(table, "M²FDP, seed 0").savefig(buffer)
        contents.append(buffer.getvalue())
    assert contents[0] == contents[1]
