"""A study that compares, draws and judges a metric of a user's own."""

import pandas as pd
import pytest
from click.testing import CliRunner
from tests.finished import REPOSITORY
from tests.pages import write_files

from m2fdp.cli import study

TINY = """
title: Tiny
parameters:
  training: {rounds: 2, local_steps: 1, batch_size: null, metrics: ['quality:AUC']}
  topology: {fanouts: [2, 3], trust: {ratios: [0.5]}}
arms: {open: {algorithm: hfl}, noisy: {algorithm: hfl_dp}}
grid: {seed: [5, 6]}
table: [auc]
figure:
  panels:
    - {title: AUC, x: round, y: auc}
    - {title: AUC in the end, x: arm, y: auc}
claims:
  - {claim: noise costs, source: ours, paper: it does, measure: auc, of: {arm: open},
     over: {arm: noisy}, as: difference, at_least: 0.0}
"""


@pytest.mark.full
def test_a_study_of_a_metric_of_ones_own(project):
    write_files(REPOSITORY / "docs" / "metrics.md", project)
    (project / "conf/base/studies/tiny.yml").write_text(TINY)
    result = CliRunner().invoke(study, ["tiny", "--workers=1"])
    assert result.exit_code == 0, result.output
    folder = project / "data/08_reporting/tiny"
    table = pd.read_csv(folder / "comparison.csv")
    assert table["auc_mean"].between(0, 1).all() and (table["seeds"] == 2).all()
    text = (folder / "report.md").read_text()
    assert "| AUC ± std |" in text and "| AUC |" in text and "points (n = 2)" in text
