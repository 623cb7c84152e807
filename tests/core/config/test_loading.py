"""Configurations from files and values, without Kedro."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kedro.config import OmegaConfigLoader
from tests.finished import REPOSITORY

from m2fdp import load_config
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.given.loading import parse_config, unread_files

CONF = REPOSITORY / "conf"
ENVIRONMENTS = sorted(path.parent.name for path in CONF.glob("*/parameters.yml"))


def by_kedro(env, params=None):
    loader = OmegaConfigLoader(
        str(CONF),
        env=env,
        base_env="base",
        default_run_env="local",
        merge_strategy={"parameters": "soft"},
        runtime_params=params or {},
    )
    return parse_config(loader["parameters"])


def test_nothing_given_is_conf_base():
    assert load_config() == Config() == load_config(CONF / "base")


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_an_environment_is_what_kedro_makes_of_it(env):
    assert load_config(CONF / env) == by_kedro(env)


@pytest.mark.parametrize("env", [env for env in ENVIRONMENTS if env not in ("base", "heart")])
def test_an_environment_suits_the_main_comparison(env):
    for algorithm in ("hfl", "hfl_dp", "pedpfl", "m2fdp"):
        config = load_config(CONF / env, algorithm=algorithm)
        check_config(config)
        assert (config.features.map == "pixels") == env.endswith("_pixels")
        assert env.removesuffix("_pixels") == config.dataset.name


def test_the_later_source_wins_key_by_key(tmp_path):
    file = tmp_path / "parameters.yml"
    file.write_text("privacy:\n  epsilon: 3.0\n  delta: 1.0e-6\nseed: 1\n")
    config = load_config(
        file, {"privacy.epsilon": 2.0, "training": {"rounds": 7, "local_aggregation.1": 4}}, seed=5
    )
    assert (config.privacy.epsilon, config.privacy.delta, config.seed) == (2.0, 1e-6, 5)
    assert config.training.rounds == 7
    assert config.training.local_aggregation == {1: 4}
    assert config.training.local_steps == Config().training.local_steps


PATCHES = (
    st.dictionaries(st.sampled_from(["1", "2", "3"]), st.none() | st.integers(1, 9), max_size=3)
    | st.none()
)


@given(st.lists(PATCHES, max_size=3))
def test_layers_are_added_and_cleared_as_kedro_does(patches):
    sources = [{"training": {"local_aggregation": patch}} for patch in patches]
    expected = Config().training.local_aggregation
    for patch in patches:
        expected = {} if patch is None else expected | {int(k): v for k, v in patch.items()}
    expected = {layer: every for layer, every in expected.items() if every is not None}
    assert load_config(*sources).training.local_aggregation == expected


def test_null_takes_the_place_of_what_was_there():
    params = {"training": {"local_aggregation": None}, "topology": {"trust": {"ratios": None}}}
    assert load_config(params) == by_kedro("base", params)
    assert load_config(params).training.local_aggregation == {}


def test_untrusted_servers_alone_are_enough():
    config = load_config({"topology.trust.untrusted": ["server-1-0"]})
    assert config.topology.trust.untrusted == ["server-1-0"]
    with pytest.raises(InputError, match="not both"):
        load_config(CONF / "base", {"topology.trust.untrusted": ["server-1-0"]})


def test_a_folder_is_all_its_files_of_parameters(tmp_path):
    (tmp_path / "parameters.yml").write_text("seed: 2\n")
    (tmp_path / "parameters_model.yaml").write_text("model: {name: svm}\n")
    (tmp_path / "catalog.yml").write_text("model: {type: nothing}\n")
    config = load_config(tmp_path)
    assert (config.seed, config.model.name) == (2, "svm")


def test_a_file_that_nothing_reads_is_named_unless_a_key_names_it(tmp_path):
    for name in ("parameters.yml", "tree.yml", "studies/mine.yml", ".hidden.yml", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("seed: 1\n")
    assert unread_files(tmp_path, {}) == [tmp_path / "tree.yml"]
    assert unread_files(tmp_path, {"topology": {"edges": "conf/mine/tree.yml"}}) == []
    (tmp_path / "trainning.yml").touch()
    with pytest.raises(InputError, match="nothing reads it; did you mean parameters_training.yml"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"parameters.yml": "seed: [1\n"}, "parameters.yml, line 2.*no YAML"),
        ({"parameters.yml": "- 1\n"}, "parameters.yml = .*is a list"),
        ({"parameters.yml": "seed: ${one}\n"}, "parameters.yml, line 1: seed = .*a reference"),
        ({"parameters.yml": "sede: 1\n"}, "sede = 1: unknown key"),
        (
            {"parameters.yml": "privacy.epsilon: 2\nprivacy: {epsilon: 1}\n"},
            "parameters.yml = 'privacy.epsilon': is set twice",
        ),
        (
            {"parameters.yml": "privacy.server: 2\nprivacy.server.rule: 1\n"},
            "= 'privacy.server': is set and privacy.server.rule as well",
        ),
        ({"parameters.yml": "privacy: 3"}, "privacy = 3: is a block; .*such as privacy.mechanism"),
        ({"parameters.yml": "cell: 1.50"}, "cell = 1.5: .*valid string; write it in quotes"),
        ({"parameters.yml": "seed: 1:30"}, "seed = '1:30': .*integer"),
        ({"parameters.yml": "seed: 0x10"}, "seed = '0x10': .*integer"),
        ({"parameters.yml": "seed: !!int 010"}, "parameters.yml, line 1 = .*a tag"),
        (
            {"parameters.yml": "seed: 1\n", "parameters_b.yml": "seed: 2\n"},
            "seed .*set in .*_b.yml",
        ),
        ({"catalog.yml": "seed: 1\n"}, r"has no parameters\*.yml"),
    ],
)
def test_wrong_files_are_one_line(tmp_path, monkeypatch, files, words):
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        load_config(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "load_config = None: give files, folders or mappings"),
        (3, "load_config = 3: give files, folders or mappings"),
        ("nowhere.yml", "nowhere.yml = .*can't be read"),
        ({"privacy.epsilon": -1}, "privacy.epsilon = -1: .*greater than 0"),
        ({"training.rounds.more": 1}, "training.rounds = "),
        ({"training": 3}, "training = 3"),
        ({"trainin.rounds": 3}, "trainin = .*unknown key"),
        ({"algorithm": None}, "algorithm = None"),
    ],
)
def test_wrong_values_are_one_line(source, words):
    with pytest.raises(InputError, match=words) as caught:
        load_config(source)
    assert "\n" not in str(caught.value)


def test_no_framework_is_imported():
    code = "import sys, m2fdp; m2fdp.load_config('conf/mnist'); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"kedro", "omegaconf", "mlflow", "torch", "numpy"} & set(loaded)
