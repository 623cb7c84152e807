"""Great Expectations enforces a table's schema: what it finds is what reading the table finds."""

import numpy as np
import pandas as pd
import pytest
import yaml
from kedro.validation.exceptions import DataValidationError
from tests.tables.test_table import CONTENT, rows_of, schema_of

from m2fdp.tables.encoding import OTHER, OUTSIDE, encode
from m2fdp.tables.expected import Rows
from m2fdp.tables.expected import rows_of as rows_and_rules
from m2fdp.validation import TableValidator

CHANGES = {
    "nothing": lambda f: f,
    "a label in no class": lambda f: f.assign(ill=np.where(f.index == 3, 7, f["ill"])),
    "an empty cell": lambda f: f.assign(age=f["age"].where(f.index != 5)),
    "a text for a number": lambda f: f.assign(age=f["age"].astype(object).where(f.index != 5, "x")),
    "an infinite number": lambda f: f.assign(age=np.inf),
    "no client": lambda f: f.assign(hospital=f["hospital"].where(f.index > 2)),
    "an unknown category": lambda f: f.assign(sex="?"),
    "a number outside its range": lambda f: f.assign(age=300),
    "unknown cells": lambda f: f.assign(chol=[0, None] * 20),
}


@pytest.mark.parametrize("on_violation", ["clamp", "error"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_it_refuses_what_reading_refuses(tmp_path, change, on_violation):
    frame, schema = change(rows_of()), schema_of(on_violation=on_violation)
    told = {OTHER, OUTSIDE} if on_violation == "clamp" else {OTHER}
    faults = [fault for fault in encode(frame, schema).faults if fault.kind not in told]
    validator = TableValidator(str(tmp_path / "checks.html"))
    if not faults:
        validator.validate(rows_and_rules(frame, schema, "frame"))
    for fault in faults:
        with pytest.raises(DataValidationError, match=rf"{fault.column}: .*rows: {fault.rows}\b"):
            validator.validate(rows_and_rules(frame, schema, "frame"))
    assert "Great Expectations" in (tmp_path / "checks.html").read_text(encoding="utf-8")
    assert (tmp_path / "checks.passed").exists() == (not faults)


def test_the_page_of_an_earlier_table_is_removed(tmp_path):
    (tmp_path / "checks.html").touch()
    TableValidator(str(tmp_path / "checks.html")).validate(Rows(pd.DataFrame(), []))
    assert not (tmp_path / "checks.html").exists()


def test_a_table_that_is_refused_has_its_page(project, kedro_run):
    (project / "schema.yml").write_text(yaml.safe_dump(CONTENT), encoding="utf-8")
    frame = rows_of()
    frame.assign(age=frame["age"].astype(object).where(frame.index != 5, "old")).to_csv(
        project / "rows.csv", index=False
    )
    keys = "dataset.name=table,dataset.root=rows.csv,dataset.schema=schema.yml"
    told = kedro_run("--pipelines=data", f"--params={keys}", code=2).output
    assert "age: 'old' is no number, line 7, in all 1 row" in " ".join(told.split())
    page = project / "data" / "08_reporting" / "single" / "table_checks.html"
    assert "old" in page.read_text(encoding="utf-8")
