"""A run's name tells it from all others, and its command repeats it."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp import load_config
from m2fdp.cli import OPTIONS
from m2fdp.core.config import Config
from m2fdp.reporting.naming import LONGEST, command, differences, run_name

CHANGES = {
    "seed": st.integers(0, 20),
    "algorithm": st.sampled_from(["m2fdp", "hfl", "hfl_dp"]),
    "dataset.root": st.sampled_from(["data/01_raw", "../elsewhere/data", "/elsewhere/data"]),
    "topology.fanouts": st.sampled_from(["10|5", "2|5|5", "25"]),
    "training.rounds": st.integers(1, 400),
    "audit.rounds": st.sampled_from([None, 1, 30]),
    "training.local_aggregation": st.sampled_from([None, {1: 2}, {1: None, 2: 3}, {1: 4}]),
    "training.batch_size": st.sampled_from([None, 1.0, 10.5]),
    "privacy.epsilon": st.sampled_from([4.0, 1.0, 0.5, 0.25]),
    "privacy.delta": st.sampled_from([1e-5, 1e-6]),
    "threat.distrusted": st.sampled_from(["servers|cloud", "cloud", "servers|cloud|siblings"]),
    "threads": st.sampled_from([None, 1, 2]),
}
configurations = st.fixed_dictionaries({}, optional=CHANGES).map(load_config)


def test_a_default_run_is_called_by_algorithm_data_set_and_seed():
    assert run_name(Config()) == "m2fdp-digits-seed_0"
    assert command(Config()) == "kedro run"
    # Of records in a file it says whose they are.
    config = load_config({"dataset.name": "npz", "dataset.root": "/elsewhere/patients.npz"})
    assert run_name(config).startswith("m2fdp-patients-seed_0-")


def test_what_differs_from_the_defaults_is_in_the_name_what_was_typed_first():
    config = load_config({"privacy.epsilon": 2.0, "training.rounds": 5, "seed": 3})
    assert run_name(config) == "m2fdp-digits-training.rounds_5-epsilon_2.0-seed_3"
    typed = run_name(config, ["privacy.epsilon"])
    assert typed == "m2fdp-digits-epsilon_2.0-training.rounds_5-seed_3"

    enabled = load_config({"control.enabled": True})
    assert run_name(enabled) == "m2fdp-digits-control.enabled_True-seed_0"


@given(configurations, configurations)
def test_two_configurations_never_share_a_name(one, other):
    assert (run_name(one) == run_name(other)) == (one == other)


@given(configurations)
def test_a_name_is_no_place_and_not_too_long(config):
    name = run_name(config)
    assert "/" not in name and "elsewhere" not in name
    assert len(name) <= LONGEST == 60


def test_a_long_name_is_cut_and_told_from_others_by_a_digest():
    changes = {
        "training.rounds": 77,
        "training.learning_rate": 0.123456789,
        "training.local_steps": 3,
        "training.evaluate_every": 7,
        "privacy.clipping_norm": 0.123456789,
        "privacy.delta": 1.2345678e-7,
        "partition.labels_per_device": 4,
        "resources.wireless_rate_mbps": 1.234,
    }
    one, other = (run_name(load_config(changes, device=device)) for device in ("cpu", "cuda:1"))
    assert one != other and "_more-" in one
    assert one.startswith("m2fdp-digits-") and len(one) <= LONGEST
    longest = {"algorithm": "a_long_module:A_LONG_NAME", "dataset.name": "fashion_mnist"}
    longest |= {"seed": 10**18}
    assert len(run_name(load_config(changes, longest))) <= LONGEST


def typed(line: str) -> dict:
    """What `kedro run` makes of the `--params` of a command."""
    _, separator, params = line.partition("--params=")
    option = OPTIONS["params"]
    with click.Context(click.Command("run", params=[option])) as context:
        return option.callback(context, option, (params.strip("'"),)) if separator else {}


@given(configurations)
def test_the_command_repeats_the_run_but_for_places(config):
    changes = typed(command(config).replace("ROOT", "data/01_raw"))
    rebuilt = load_config(changes)
    changed_keys = differences(config).keys() - {"dataset.root"}
    assert {key: differences(rebuilt)[key] for key in changed_keys} == {
        key: differences(config)[key] for key in changed_keys
    }
    assert differences(rebuilt).keys() == changed_keys


@pytest.mark.parametrize("pipelines", [["privacy"], ["data", "privacy"]])
def test_the_command_names_the_pipelines(pipelines):
    said = command(load_config({"privacy.epsilon": 2.0}), pipelines)
    assert said == f"kedro run --pipelines={','.join(pipelines)} --params=privacy.epsilon=2.0"
