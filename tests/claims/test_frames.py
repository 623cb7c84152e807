"""Runs selected however YAML, or MLflow, writes the value."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.claims.frames import comparable, in_order, select_runs
from m2fdp.core.errors import InputError

RUNS = pd.DataFrame(
    {
        "algorithm": "m2fdp",
        "seed": range(4),
        "arm": ["1", "1.0", "svm", "hfl"],
        "privacy.epsilon": [0.5, 1.0, 2.0, math.nan],
        "topology.trust.ratios": ["[0.5]", "[1]", "[0.5, 0.0]", "[1.0]"],
        "threat.distrusted": ["['servers', 'cloud']", "['cloud']", None, "None"],
        "training.batch_size": ["8", "None", "16.0", "32"],
    }
)


@pytest.mark.parametrize(
    ("where", "selected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"arm": "svm"}, [2]),
        ({"arm": ["svm", "hfl"]}, [2, 3]),
        ({"arm": 1}, [0]),
        ({"arm": "fedavg"}, []),
        ({"privacy.epsilon": 1}, [1]),
        ({"privacy.epsilon": [0.5, "2"]}, [0, 2]),
        ({"privacy.epsilon": None}, [3]),
        ({"topology.trust.ratios": [0.5]}, [0]),
        ({"topology.trust.ratios": [1.0]}, [1, 3]),
        ({"topology.trust.ratios": [[0.5], [0.5, 0]]}, [0, 2]),
        ({"threat.distrusted": ["cloud"]}, [1]),
        ({"threat.distrusted": None}, [2, 3]),
        ({"training.batch_size": [None, 16]}, [1, 2]),
        ({"algorithm": "m2fdp", "seed": [0, 2]}, [0, 2]),
        ({"arm": ["svm", "hfl"], "privacy.epsilon": 2.0}, [2]),
    ],
)
def test_runs_are_selected_however_the_value_is_written(where, selected):
    assert select_runs(RUNS, where)["seed"].tolist() == selected


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"privacy.epsilom.*privacy.epsilon"):
        select_runs(RUNS, {"privacy.epsilom": 1.0})


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["softmax", "m2fdp", "a b"]),
    lambda elements: st.lists(elements, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_a_value_equals_its_text_as_mlflow_keeps_it(value):
    assert comparable(str(value)) == comparable(value)


@given(VALUES, VALUES)
def test_different_values_stay_different(one, other):
    assert (comparable(one) == comparable(other)) == (one == other and _kinds(one) == _kinds(other))


def _kinds(value):
    """True equals 1 in Python but is another parameter."""
    if isinstance(value, list):
        return [_kinds(element) for element in value]
    return isinstance(value, bool)


def test_rows_are_in_the_order_of_the_numbers_in_texts():
    texts = ["[20, 5]", "[5, 10]", None, "[5, 2]", "[10, 10]", "0.5", "p1_10", "p1_0.5"]
    rows = pd.DataFrame({"arm": [2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "fanouts": texts})
    ordered = in_order(rows, ["arm", "fanouts"])["fanouts"].tolist()
    assert ordered[:4] == ["0.5", "[5, 2]", "[5, 10]", "[10, 10]"]
    assert ordered[4:6] == ["p1_0.5", "p1_10"]
    assert pd.isna(ordered[6]) and ordered[7] == "[20, 5]"
