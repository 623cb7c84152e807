"""The files of reports."""

import pytest

from m2fdp.studies.report import summarise


def test_a_report_that_the_disk_refuses_leaves_the_former_one(tmp_path, small_files):
    path = tmp_path / "report.md"
    path.write_text("the former")
    with small_files(), pytest.raises(OSError) as refused:
        summarise(tmp_path, {})
    assert refused.value.filename == str(path)
    assert path.read_text() == "the former"
