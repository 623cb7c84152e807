"""The studies that come with the project: every cell's configuration is valid."""

from pathlib import Path

import pytest
from kedro.framework.session import KedroSession

from m2fdp.studies.grid import expand, load_study

STUDIES = Path(__file__).parents[2] / "conf" / "base" / "studies"


@pytest.mark.parametrize("name", sorted(path.stem for path in STUDIES.glob("*.yml")))
def test_every_cell_of_the_projects_studies_is_valid(project, name):
    study = load_study(project / "conf", name)
    with KedroSession.create(project, save_on_close=False, env=study.env) as session:
        base = session.load_context().config_loader["parameters"]
    cells = expand(name, study, base, {})
    assert len({cell.hash for cell in cells}) == len(cells) > 1
