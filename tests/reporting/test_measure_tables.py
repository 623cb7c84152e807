"""Tables of measures by hand-written values."""

import math

from tests.reporting.panel_frames import study

from m2fdp.reporting.tables import measure_table, measures_to_markdown

NAMES = ["epsilon_cloud", "noise", "accuracy"]
LDP, HDP = {"arm": "a", "algorithm": "ldp"}, {"arm": "b", "algorithm": "hdp"}


def measured():
    """Two seeds each; of HDP the cloud learns everything, and no noise is known."""
    frame, _ = study(HDP, LDP)
    frame.loc[frame["arm"] == "a", "epsilon_cloud"] = [1.0011, 1.2011]
    frame.loc[frame["arm"] == "a", "noise"] = [3.0, 4.0]
    frame.loc[frame["arm"] == "b", "epsilon_cloud"] = math.inf
    return frame


def test_of_bounds_the_largest_and_of_others_the_mean_in_the_algorithms_order():
    table = measure_table(measured(), NAMES)
    assert list(table.columns) == ["algorithm", "arm", "seeds", *NAMES]
    assert table["algorithm"].tolist() == ["ldp", "hdp"]
    assert table["seeds"].tolist() == [2, 2]
    assert table["epsilon_cloud"].tolist() == [1.2011, math.inf]
    assert table["noise"].tolist()[0] == 3.5
    assert math.isnan(table["noise"].tolist()[1])


def test_bounds_are_rounded_up_and_what_is_not_there_is_a_dash():
    lines = measures_to_markdown(measure_table(measured(), NAMES), NAMES).splitlines()
    assert lines == [
        "| algorithm | arm | ε, the cloud | noise over shift, broadcast | accuracy |",
        "| --- | --- | ---: | ---: | ---: |",
        "| LDP | a | 1.21 | 3.5 | 0.600 |",
        "| HDP | b | ∞ | – | 0.600 |",
    ]
