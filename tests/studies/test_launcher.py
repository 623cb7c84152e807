"""What a study says while its cells run."""

from m2fdp import progress
from m2fdp.studies import command, launcher


def test_how_far_a_study_is():
    lines = [launcher.how_far("cells", done, 10, 2, 60.0) for done in (0, 4, 9)]
    assert lines == [
        "0 of 10 cells done, 2 running, 8 waiting",
        "4 of 10 cells done, 2 running, 4 waiting; about 90 s left",
        "9 of 10 cells done, 1 running, 0 waiting; about 7 s left",
    ]


def test_lines_on_all_cells_come_while_none_ends(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    said = ""
    with launcher._progress("cells", 3, 2) as done:
        while "0 of 3 cells done, 2 running, 1 waiting" not in said:
            said += capsys.readouterr().out
        done("a: finished")
    assert "[1/3] a: finished" in said + capsys.readouterr().out


def test_calibrating_a_counted_search_says_so_while_it_lasts(monkeypatch, capsys):
    said = ""

    def calibrate(*_):
        nonlocal said
        while "Calibrating 2 runs of a counted search with the one that it chooses: " not in said:
            said += capsys.readouterr().out
        return "targets"

    monkeypatch.setattr(command, "verified_targets", calibrate)
    assert command._counted_targets(["one", "another"], ["released"], 0.5) == "targets"
    assert said.endswith(" s so far\n")
