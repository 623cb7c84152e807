"""What a command line, a file and a study's file set is what they say, however it is written."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from m2fdp import load_config
from m2fdp.assignments import read_assignments, split_outside
from m2fdp.core.config import Config, flatten
from m2fdp.core.errors import InputError
from m2fdp.given.loading import parse_config
from m2fdp.studies.order import as_yaml

# By a key: ways to write its value, and what it then is.
SPELLINGS = {
    "seed": {"8": 8, "008": 8, "010": 10, "1_000": 1000, "+5": 5, "'7'": 7},
    "cell": {"010": "010", "10": "10", "1:30": None, "1_0": "1_0", "no": "no", "a.b": "a.b"},
    "privacy.epsilon": {"010": 10.0, "1e-3": 1e-3, ".5": 0.5, "2.": 2.0, "1.50": 1.5, "3": 3.0},
    "control.enabled": {"true": True, "off": False, "yes": True, "No": False},
    "topology.fanouts": {"[10,5]": [10, 5], "10|5": [10, 5], "[10|5]": [10, 5], "'[9]'": [9]},
    "topology.trust.untrusted": {"[8, 010, no]": ["8", "010", "no"], "8|010": ["8", "010"]},
    "partition.table": {"[[5,0],[0,5]]": [[5, 0], [0, 5]], "5/0|0/5": [[5, 0], [0, 5]]},
    "dataset.root": {"/a/b c": "/a/b c", "'/a,b'": "/a,b", "O'Brien's": "O'Brien's", "#1": "#1"},
    "training.local_aggregation": {"{1: 5}": {1: 5}, "null": {}, "{01: 5}": {1: 5}},
}  # fmt: skip
CASES = [(key, *case) for key, spellings in SPELLINGS.items() for case in spellings.items()]


@pytest.mark.parametrize(("key", "written", "value"), CASES)
def test_one_value_is_the_same_on_a_command_line_and_in_a_file(tmp_path, key, written, value):
    if key == "topology.trust.untrusted":
        read_as = {"topology.trust.ratios": None}
    else:
        read_as = {"partition.scheme": "table"} if key == "partition.table" else {}
    file = tmp_path / "parameters.yml"
    file.write_text(f"{key}: {written if written != '#1' else repr(written)}\n")
    sources = (read_assignments([f"{key}={written},threads=2"]), file)
    for source in sources:
        if value is None:
            with pytest.raises(InputError, match=key):
                load_config(source)
            continue
        config = load_config(source, read_as)
        for part in key.split("."):
            config = getattr(config, part)
        assert config == value and type(config) is type(value)


def test_the_values_of_a_study_are_read_alike():
    assert as_yaml("010") == "010" and as_yaml("2.50") == 2.5 and as_yaml("[10,5]") == [10, 5]
    assert list(split_outside("[10|5]|[20,5]", "|")) == ["[10|5]", "[20,5]"]


def test_a_file_may_write_keys_with_dots_and_empty_a_block(tmp_path):
    file = tmp_path / "parameters.yml"
    file.write_text("privacy.epsilon: 2\nprivacy.delta: 1e-6\ntraining:\ntopology: {trust: }\n")
    config = load_config({"training.rounds": 7}, file)
    assert (config.privacy.epsilon, config.privacy.delta) == (2.0, 1e-6)
    assert config.training.rounds == 7 and config.topology == Config().topology


KEYS = st.sampled_from([*flatten(Config().model_dump()), "privacy", "training", "nope", "", "a..b"])
VALUES = st.one_of(
    st.text("[]{}\"'=,|.:#&*!%\\ 09aE_-<~?$\n\t\0", max_size=12),
    st.text(max_size=8),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["null", "yes", "[1, 2]", "{a: 1}", "${seed}", "&a [*a]", "!!set {}", "1e999"]),
    st.integers(1, 5000).map(lambda n: "9" * n),
    st.integers(1, 200).map(lambda n: "[" * n),
)
TEXTS = st.lists(st.tuples(KEYS, VALUES), max_size=3).map(
    lambda pairs: ",".join(f"{key}={value}" for key, value in pairs)
)


def holds(text):
    """It ends in one line, or each of its keys is in the configuration as it is written."""
    try:
        blocks = read_assignments([text])
        config = parse_config(blocks)
    except InputError as error:
        assert "\n" not in str(error)
        return
    said = flatten(config.model_dump())
    items = [item.partition("=") for item in split_outside(text, ",")]
    for key, written in {key.strip(): written.strip() for key, _, written in items}.items():
        value = said.get(key, {})
        if isinstance(value, str) and written[:1] not in {"'", '"'}:
            assert value == written
        elif type(value) in (int, float) and written[:1] not in {"'", '"'}:
            assert value == float(written.replace("_", ""))


@settings(max_examples=300)
@given(TEXTS)
@example("seed=" + "9" * 5000)
@example("cell=010,seed=08")
def test_whatever_is_typed_is_taken_as_written_or_refused_in_one_line(text):
    holds(text)


@pytest.mark.full
@settings(max_examples=10_000)
@given(TEXTS)
def test_ten_thousand_are(text):
    holds(text)
