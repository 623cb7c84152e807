"""The studies that come with the project can be run, searched and reported, at each scale."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from m2fdp import Experiment, load_config
from m2fdp.core.config import Config
from m2fdp.given.loading import parse_config
from m2fdp.studies.command import checked_setting
from m2fdp.studies.grid import expand, points
from m2fdp.studies.order import Order
from m2fdp.studies.search import first_of, search_all
from m2fdp.studies.study import load_study

CONF = Path(__file__).parents[2] / "conf"
STUDIES = sorted(path.stem for path in (CONF / "base" / "studies").glob("*.yml"))
CHANGED = sorted((path.parts[-3], path.stem) for path in CONF.glob("[!b]*/studies/*.yml"))
# To try out every candidate of a search takes seconds; one study of each kind is for every change.
QUICK = {"fig5", "h_table1", "quickstart"}
SCALES = [
    pytest.param(name, scale, marks=[] if name in QUICK and scale is None else pytest.mark.full)
    for name in STUDIES
    for scale in (None, *load_study(CONF, name).scales)
]


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_every_cell_candidate_figure_and_claim_of_the_projects_studies_is_valid(
    project, name, scale
):
    setting = checked_setting(project, Order(name, scale))
    names = [point.name for point in points(setting.study)]
    assert len(set(names)) == len(names) > 1


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_can_be_tried_out_and_sets_features_itself_if_it_wants_any(name):
    """So that the published numbers don't move with what an environment holds for the best."""
    study = load_study(CONF, name)
    assert "smoke" in study.scales or name == "quickstart"
    environments = {study.env, *(scale.env for scale in study.scales.values())}
    for environment in environments - {None}:
        assert load_config(CONF / environment).features == Config().features


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        # A controller has none of what the environment has for the best.
        pytest.param(*pair, marks=[] if pair == ("cifar10", "fig6") else pytest.mark.full)
        for pair in CHANGED
    ],
)
def test_a_study_changed_by_an_environment_can_be_run_there(project, environment, name):
    setting = checked_setting(project, Order(name, env=environment))
    assert setting.study.env == environment
    assert len(list(points(setting.study))) > 1


# A run of few rounds on few records takes a second or two, nearly all of it overhead.
MOST_SMOKE_RUNS, MOST_SMOKE_STEPS = 90, 6000


def runs_of(setting):
    """Every run of a study by its hash, those of its searches too."""
    schedules, tried = search_all(setting, tuple(points(setting.study)), first_of)
    searched = [cell for candidate in tried for cell in candidate.cells]
    return {cell.hash: cell for cell in [*searched, *expand(setting, schedules)]}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.full)
        for name in STUDIES
        if name != "quickstart"
    ],
)
def test_a_study_is_tried_out_in_minutes(project, name):
    """On records that are as its cells ask for: a part that fails is tried out by nobody."""
    setting = checked_setting(project, Order(name, "smoke"))
    runs = runs_of(setting)
    assert 1 < len(runs) <= MOST_SMOKE_RUNS
    steps = 0
    for cell in runs.values():
        merged = OmegaConf.merge(setting.base, cell.overrides)
        config = parse_config(OmegaConf.to_container(merged))
        steps += config.training.rounds * config.training.local_steps
        Experiment.from_config(config).check()
    assert steps <= MOST_SMOKE_STEPS
