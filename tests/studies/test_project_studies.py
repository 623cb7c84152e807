"""The studies that come with the project can be run, searched and reported, at each scale."""

from pathlib import Path

import pytest

from m2fdp.studies.command import Order, _setting
from m2fdp.studies.grid import points
from m2fdp.studies.study import load_study

CONF = Path(__file__).parents[2] / "conf"
STUDIES = sorted(path.stem for path in (CONF / "base" / "studies").glob("*.yml"))
# To try out every candidate of a search takes seconds; one study of each kind is for every change.
QUICK = {"fig5", "features", "h_table1", "quickstart"}
SCALES = [
    pytest.param(name, scale, marks=[] if name in QUICK and scale is None else pytest.mark.full)
    for name in STUDIES
    for scale in (None, *load_study(CONF, name).scales)
]


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_every_cell_candidate_figure_and_claim_of_the_projects_studies_is_valid(
    project, name, scale
):
    setting = _setting(project, Order(name, scale))
    names = [point.name for point in points(setting.study)]
    assert len(set(names)) == len(names) > 1


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "quickstart"])
def test_every_study_can_be_tried_out(name):
    assert "smoke" in load_study(CONF, name).scales
