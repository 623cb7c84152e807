"""What the configuration takes and refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.core.blocks import Block
from m2fdp.core.config import Config, TopologyConfig, TrustConfig, flatten
from m2fdp.core.errors import InputError
from m2fdp.given.loading import parse_block, parse_config

VALID = {
    "algorithm": "m2fdp",
    "dataset": {"name": "digits"},
    "partition": {},
    "topology": {"fanouts": [4, 3], "trust": {"ratios": [0.5]}},
    "model": {},
    "training": {"rounds": 5, "local_steps": 2, "learning_rate": 1},
    "privacy": {"epsilon": 1, "delta": 1e-5, "clipping_norm": 1},
    "threat": {},
    "resources": {},
    "control": {},
}


def with_key(dotted, value):
    """VALID with one key set."""
    block, _, key = dotted.rpartition(".")
    if not block:
        return VALID | {key: value}
    if block == "topology.trust":
        return VALID | {"topology": {"fanouts": [4, 3], "trust": {key: value}}}
    return VALID | {block: VALID[block] | {key: value}}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("training.round", 5, "unknown key; valid keys are .*rounds"),
        ("learning", 5, "unknown key; valid keys are algorithm"),
        ("training.round", 5, "did you mean rounds[?]$"),  # not attack.round
        ("trainig", {"rounds": 5}, "did you mean training[?]$"),
        ("epsilon", 5, "zones; did you mean privacy.epsilon[?]$"),
        ("training.labels_per_device", 5, "did you mean partition.labels_per_device[?]$"),
        ("name", "cnn", "did you mean dataset.name or model.name[?]$"),
        ("something_else", 5, "zones$"),
        ("privacy.unit", "records", "did you mean record[?]$"),
        ("privacy.mechanism", "gradiant", "module:function; did you mean gradient[?]$"),
        ("threat.distrusted", ["server"], "did you mean servers[?]$"),
        ("training.rounds", "many", "valid integer"),
        ("training.rounds", 0, "greater than or equal to 1"),
        ("training.learning_rate", -1, "greater than 0"),
        ("training.learning_rate", float("inf"), "finite"),
        ("privacy.epsilon", 0, "greater than 0"),
        ("privacy.delta", 1, "less than 1"),
        ("threat.distrusted", [], "at least 1 item"),
        ("threat.distrusted", ["trusted_servers"], "'servers'"),
        ("threat.open_links", ["cloud"], "'uplinks'"),
        ("control.tau", 0, "greater than or equal to 1"),
        ("control.alpha_2", -1, "greater than or equal to 0"),
        ("control.alpha_2", float("inf"), "finite"),
        ("control.initial_local_steps", 41, "must not pass max_local_steps"),
        ("control", {"alpha_1": 0, "alpha_2": 0, "alpha_3": 0}, "must be positive"),
        ("dataset.name", "imagenet", "'digits', .* or package.module:function"),
        ("partition.scheme", "even", "'column' or package.module:function"),
        ("topology", {"weights": "even"}, "'samples'"),
        ("seed", True, "must be a number"),
        ("training.rounds", True, "must be a number"),
        ("training.learning_rate", 1e300, "less than or equal to"),
        ("training.learning_rate", 1e-300, "greater than or equal to"),
        ("training.local_steps", 10_000_000, "more than 10,000,000"),
        ("resources.wired_power_dbm", float("nan"), "finite"),
        ("cell", "a" * 201, "at most 200"),
        ("partition.validation_fraction", 1, "less than 1"),
        ("training.evaluate_on", "validation", "needs partition.validation_fraction"),
        ("topology.trust.ratios", [1.5], "less than or equal to 1"),
        ("device", "tpu", "valid: cpu, cuda, or cuda:N for GPU N$"),
        ("cell", "../elsewhere", "valid: names of letters, digits, .* with / between them$"),
        ("cell", "a\n", "valid: names of letters"),
        ("execution", {"address": "here"}, "valid: auto, or HOST:PORT"),
        # One limit each, whatever is asked for.
        ("privacy.epsilon", 1e7, "less than or equal to 1000000$"),
        ("privacy.epsilon", 1e12, "less than or equal to 1000000$"),
        ("privacy.epsilon_cloud", 1e12, "less than or equal to 1000000$"),
        ("privacy.budget", 1e7, "less than or equal to 1000000$"),
        ("privacy.label_epsilon", 1e7, "less than or equal to 1000000$"),
        ("attack", {"iterations": 10**10}, "less than or equal to"),
        ("model", {"channels": [1, 2]}, "at least 3 items"),
    ],
)
def test_bad_values_are_told_by_key_and_remedy(key, value, words):
    with pytest.raises(InputError, match=words) as caught:
        parse_config(with_key(key, value))
    assert "\n" not in str(caught.value)


def test_what_is_not_given_has_its_default():
    config = parse_config({"training": {"rounds": 5}})
    assert config == Config().model_copy(
        update={"training": Config().training.model_copy(update={"rounds": 5})}
    )


def test_a_block_of_ones_own_may_ask_for_a_key():
    class Options(Block):
        depth: int

    with pytest.raises(InputError, match=r"options.depth = '\(missing\)': Field required"):
        parse_block(Options, {}, "options")


def test_lists_and_nulls_as_the_command_line_gives_them():
    config = parse_config(
        VALID
        | {"topology": {"fanouts": "10|5", "trust": {"ratios": 0.5}}}
        | {"training": VALID["training"] | {"local_aggregation": {"1": 5, "2": None}}}
    )
    assert config.threat.distrusted == ["servers", "cloud"]
    assert config.topology.fanouts == [10, 5]
    assert config.topology.trust.ratios == [0.5]
    assert config.training.local_aggregation == {1: 5}
    merged = parse_config(with_key("training.local_aggregation", {1: 2, 2: 4, "1": None}))
    assert merged.training.local_aggregation == {2: 4}
    cleared = parse_config(with_key("training.local_aggregation", None))
    assert cleared.training.local_aggregation == {}


def test_a_network_needs_a_tree_and_one_kind_of_trust():
    with pytest.raises(InputError, match="give fanouts"):
        parse_config(VALID | {"topology": {"fanouts": None}})
    with pytest.raises(InputError, match="not both"):
        parse_config(
            VALID | {"topology": {"fanouts": [2], "trust": {"ratios": [], "untrusted": []}}}
        )


def test_a_default_gives_way_to_the_other_way_to_say_it():
    """What is given, as in conf/base, does not."""
    assert TopologyConfig(edges="e.csv").fanouts is None
    assert TopologyConfig(edges="e.csv", fanouts=[2]).fanouts == [2]
    assert TopologyConfig(edges=None).fanouts == [10, 5]
    assert TrustConfig(untrusted=["a"]).ratios is None
    assert TrustConfig(untrusted=None).ratios == [0.5]
    assert TrustConfig(ratios=None).untrusted is None
    with pytest.raises(ValueError, match="not both"):
        TrustConfig(ratios=[0.5], untrusted=["a"])


@pytest.mark.parametrize(
    ("key", "name"),
    [("dataset.name", "own_data:letters"), ("partition.scheme", "own.dealing:by_writer")],
)
def test_names_may_be_those_of_ones_own_code(key, name):
    assert flatten(parse_config(with_key(key, name)).model_dump())[key] == name


KEYS = st.text("abc", min_size=1, max_size=3)


@given(st.recursive(st.integers(), lambda inner: st.dictionaries(KEYS, inner), max_leaves=9))
def test_flatten_keeps_every_leaf(nested):
    def leaves(node):
        if isinstance(node, dict) and node:
            return [leaf for child in node.values() for leaf in leaves(child)]
        return [node]

    if isinstance(nested, dict):
        flat = flatten(nested)
        assert list(flat.values()) == (leaves(nested) if nested else [])
