"""`m2fdp data describe`: what it makes of tables as people have them."""

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner
from tests.tables.test_table import rows_of

from m2fdp import load_config
from m2fdp.experiment import Experiment
from m2fdp.given.loading import parse_block
from m2fdp.program import main
from m2fdp.tables.describe import describe
from m2fdp.tables.schema import Schema


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project's root, with a table in it."""
    (tmp_path / "pyproject.toml").touch()
    rows_of(canton=np.resize(["BS", "BE"], 40)).to_csv(tmp_path / "patients.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(main, ["data", "describe", *arguments])


def test_two_commands_lead_from_a_file_to_a_run(project):
    told = run("patients.csv", "--label=ill", "--client=hospital", "--group=canton")
    assert told.exit_code == 0, told.output
    assert told.output.endswith(
        "wrote conf/patients/parameters.yml\nwrote conf/patients/schema.yml\n"
        "wrote conf/patients/edges.csv\nwrote conf/patients/labels.png\n"
        "Confirm what conf/patients/schema.yml says, then: kedro run --env=patients\n"
    )
    experiment = Experiment.from_config(load_config(project / "conf" / "patients"))
    assert experiment.plan.network.tree.names[1:] == (("BE", "BS"), ("Bern", "Basel"))
    assert experiment.summary()["guarantee"] == "conditional"
    assert "label, client, groups.0, age" in experiment.dataset.doubt
    schema = project / "conf" / "patients" / "schema.yml"
    schema.write_text(schema.read_text().replace(", confirmed: false", ""))
    confirmed = Experiment.from_config(load_config(project / "conf" / "patients"))
    assert confirmed.summary()["guarantee"] == "verified"
    assert len(confirmed.train().metrics) > 0


def test_nothing_is_written_over(project):
    assert run("patients.csv", "--label=ill").exit_code == 0
    again = run("patients.csv", "--label=ill")
    assert again.exit_code == 2 and "conf/patients/parameters.yml is there already" in again.output


CELLS = np.arange(60)
COLUMNS = {
    "numbers": (CELLS * 1.5 - 7, "numbers", {"range": [-10.0, 90.0]}),
    "whole numbers": (CELLS % 30, "numbers", {"range": [0.0, 30.0]}),
    "few whole numbers": (CELLS % 3, "categories", {"categories": ["0", "1", "2"]}),
    "booleans": (CELLS % 2 == 0, "categories", {"categories": ["false", "true"]}),
    "names of kinds": (np.resize(["b", "a"], 60), "categories", {"categories": ["a", "b"]}),
    "an index": (CELLS, "row number", None),
    "dates": ([f"2020-01-{1 + n % 28:02}" for n in CELLS], "date", None),
    "one value": (np.zeros(60), "constant", None),
    "names": ([f"p-{n}" for n in CELLS], "names", None),
    "texts": ([f"a long text about patient number {n}" for n in CELLS], "text", {"text": 1024}),
    "numbers and words": (
        [*np.round(np.linspace(1, 9, 58), 2), "unknown", "unknown"],
        "numbers",
        {"range": [1.0, 9.0], "missing": ["unknown"]},
    ),
    "numbers, words and gaps": (
        [*np.round(np.linspace(1, 9, 57), 2), "unknown", "inf", None],
        "numbers",
        {"range": [1.0, 9.0], "missing": ["inf", "unknown"]},
    ),
    "numbers and gaps": (
        [*np.linspace(0.5, 9, 59), None],
        "numbers",
        {"range": [0.0, 9.0], "missing": []},
    ),
}


@pytest.mark.parametrize(("cells", "kind", "entry"), COLUMNS.values(), ids=COLUMNS)
def test_what_a_column_is_taken_for(tmp_path, cells, kind, entry):
    path = tmp_path / "rows.csv"
    other = np.linspace(0, 1, 60) ** 2
    pd.DataFrame({"x": cells, "other": other, "y": CELLS % 2}).to_csv(path, index=False)
    described = describe(str(path), "y")
    assert (described.columns[0].kind, described.columns[0].entry) == (kind, entry)
    schema = parse_block(Schema, yaml.safe_load(described.schema), "schema")
    assert ("x" in schema.columns) == (entry is not None)


HEAD = "age,ill\n"
ROWS = "".join(f"{30 + n % 40},{n % 2}\n" for n in range(60))
ODD_FILES = {
    "a BOM": ("﻿" + HEAD + ROWS).encode(),
    "semicolons": (HEAD + ROWS).replace(",", ";").encode(),
    "decimal commas": ("age;ill\n" + ROWS.replace(",", ",5;")).encode(),
    "CRLF": (HEAD + ROWS).replace("\n", "\r\n").encode(),
    "Latin-1": ("Größe,ill\n" + ROWS).encode("latin-1"),
    "UTF-16": (HEAD + ROWS).encode("utf-16"),
    "2,000 columns": (
        ",".join(f"c{n}" for n in range(1999))
        + ",ill\n"
        + "".join(",".join([str(n / 7)] * 1999) + f",{n % 2}\n" for n in range(30))
    ).encode(),
    "an index column": (
        ",age,ill\n" + "".join(f"{n},{r}\n" for n, r in enumerate(ROWS.split()))
    ).encode(),
    "quotes": (HEAD + ROWS.replace("30", '"30"')).encode(),
    "line breaks in cells": (
        "note,ill\n" + "".join(f'"a\nb{n % 3}",{n % 2}\n' for n in range(60))
    ).encode(),
    "mixed types": ("age,ill\n" + ROWS + "old,1\n").encode(),
    "blank lines": ("\n" + HEAD + ROWS.replace("\n", "\n\n")).encode(),
}
REFUSED = {
    "nothing": (b"", "can't be read as a table"),
    "a header only": (HEAD.encode(), "has no row"),
    "one column": (b"ill\n0\n1\n0\n", "has no column but ill"),
    "an unbalanced quote": ((HEAD + ROWS + '"30,1\n').encode(), "can't be read as a table"),
    "no label": ((HEAD + ROWS).replace("ill", "sick").encode(), "--label = 'ill': is no column"),
    "an empty label": ((HEAD + ROWS + "30,\n").encode(), "is empty in row 61"),
    "one class": ((HEAD + "30,1\n40,1\n").encode(), "has 1 distinct value"),
    "a name for a label": (
        (HEAD + "".join(f"30,p{n}\n" for n in range(200))).encode(),
        "has 200 distinct values",
    ),
    "a row too long": ((HEAD + ROWS + "1,1,1,1\n").encode(), "can't be read as a table"),
    "zeros": (b"\0" * 200, "FILE"),
}


@pytest.mark.parametrize("content", ODD_FILES.values(), ids=ODD_FILES)
def test_odd_files_are_described(project, content):
    (project / "odd.csv").write_bytes(content)
    told = run("odd.csv", "--label=ill")
    assert told.exit_code == 0, told.output
    config = load_config(project / "conf" / "odd", {"partition.scheme": "iid"}, **{"seed": 1})
    assert len(Experiment.from_config(config).dataset.labels) >= 30


@pytest.mark.parametrize(("content", "line"), REFUSED.values(), ids=REFUSED)
def test_files_that_are_no_tables_are_refused_in_one_line(project, content, line):
    (project / "odd.csv").write_bytes(content)
    told = run("odd.csv", "--label=ill")
    assert told.exit_code == 2 and line in told.output, told.output
    assert "Traceback" not in told.output and not (project / "conf" / "odd").exists()


def test_a_workbook_gets_advice(project):
    (project / "odd.xlsx").write_bytes(b"PK")
    assert "save its sheet as CSV" in run("odd.xlsx", "--label=ill").output


NOUNS = ["room", "staff", "breakfast", "bed", "dinner"]
WORDS = (
    ["rude", "dirty", "slow", "useless", "bland"],
    ["friendly", "clean", "quick", "helpful", "tasty"],
)


def test_texts_need_no_setting_of_ones_own(project):
    """All rows have words in common, along which long steps would swing to and fro."""
    rng = np.random.default_rng(2)
    stars = rng.integers(0, 2, 1500)
    told = [" and ".join(f"the {n} was {rng.choice(WORDS[y])}" for n in NOUNS) for y in stars]
    frame = pd.DataFrame({"review": told, "hotel": np.arange(1500) % 5, "stars": stars})
    frame.to_csv(project / "reviews.csv", index=False)
    assert run("reviews.csv", "--label=stars", "--client=hotel").exit_code == 0
    trained = Experiment.from_config(load_config(project / "conf" / "reviews")).train()
    assert trained.accuracy > 0.9


def test_a_word_among_labels_that_are_numbers_is_named(project):
    days = pd.Series(np.linspace(0, 60, 40).round(1), dtype=object)
    days[7] = "soon"
    rows_of(days=days).to_csv(project / "stays.csv", index=False)
    told = run("stays.csv", "--label=days")
    assert told.exit_code == 2 and "'soon' in row 8" in " ".join(told.output.split())


def test_outside_a_project_nothing_is_written(tmp_path, monkeypatch):
    rows_of().to_csv(tmp_path / "patients.csv", index=False)
    monkeypatch.chdir(tmp_path)
    for arguments in (["data", "describe", "patients.csv", "--label=ill"], ["predict", "a", "b"]):
        told = CliRunner().invoke(main, arguments)
        assert told.exit_code == 2 and "is in no project of m2fdp" in told.output
    assert not (tmp_path / "conf").exists()
