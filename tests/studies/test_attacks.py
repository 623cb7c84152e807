"""Studies whose cells run the attack."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from m2fdp.adversaries.facts import check_attack
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.studies.command import checked_setting
from m2fdp.studies.grid import expand
from m2fdp.studies.order import Order
from m2fdp.studies.report import check_report
from m2fdp.studies.study import Board, Study

PANEL = {"panels": [{"title": "PSNR", "x": "arm", "y": "attack_psnr"}]}
ATTACKS = {"title": "Attacks", "pipelines": ["attack"], "figure": PANEL}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pipelines": []}, "give pipelines: [attack]"),
        ({"figure": None, "board": None}, "give a figure"),
        ({"pipelines": ["clock"]}, "Input should be 'attack'"),
    ],
)
def test_what_an_attacked_study_needs(change, words):
    content = ATTACKS | {"board": {"title": "Board"}} | change
    with pytest.raises(ValidationError, match=words.replace("[", r"\[")):
        Study.model_validate(content)


def test_cells_know_their_pipelines_and_are_no_trained_runs(project):
    setting = checked_setting(project, Order("attack_board", "smoke"))
    cells = expand(setting, {})
    assert {cell.pipelines for cell in cells} == {("attack",)}
    for cell in cells:
        check_attack(cell.config, check_config(cell.config))
    trained = setting.study.model_copy(update={"pipelines": [], "board": None})
    others = expand(replace(setting, study=trained), {})
    assert not {cell.hash for cell in cells} & {cell.hash for cell in others}
    # A board of two runs of an arm.
    wide = setting.study.model_copy(update={"grid": {"seed": [0, 1]}, "board": Board(title="t")})
    with pytest.raises(InputError, match="board.where = 'none': has several runs"):
        check_report(wide, expand(replace(setting, study=wide), {}))


def test_an_attack_that_is_not_defined_is_refused_before_any_cell_runs(project):
    path = project / "conf/base/studies/attack_board.yml"
    late = path.read_text().replace("observer: cloud", "observer: cloud\n  attack.round: 9")
    path.write_text(late)
    with pytest.raises(InputError, match="attack.round = 9"):
        checked_setting(project, Order("attack_board", "smoke"))
