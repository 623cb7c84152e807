"""A session's configuration is read once and handed out as often as it is asked for."""

from m2fdp.pipelines.configuration import StrictConfigLoader


def test_the_files_are_read_once_and_nobody_changes_what_the_next_gets(tmp_path):
    for env in ("base", "local"):
        (tmp_path / env).mkdir()
    file = tmp_path / "base" / "parameters.yml"
    file.write_text("training: {rounds: 3}\n")
    loader = StrictConfigLoader(tmp_path, base_env="base", default_run_env="local")
    loader["parameters"]["training"]["rounds"] = 4
    file.write_text("training: {rounds: 5}\n")
    assert loader["parameters"] == {"training": {"rounds": 3}}
    again = StrictConfigLoader(tmp_path, base_env="base", default_run_env="local")
    assert again["parameters"] == {"training": {"rounds": 5}}


def test_what_somebody_sets_is_what_everybody_gets(tmp_path):
    for env in ("base", "local"):
        (tmp_path / env).mkdir()
    (tmp_path / "base" / "parameters.yml").write_text("seed: 3\n")
    loader = StrictConfigLoader(tmp_path, base_env="base", default_run_env="local")
    assert loader["parameters"] == {"seed": 3}
    loader["parameters"] = {"seed": 4}
    assert loader["parameters"] == {"seed": 4}
