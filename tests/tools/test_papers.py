"""A paper's studies as one command, and CIFAR-10's archive as a file of arrays."""

import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
from click.testing import CliRunner
from tests.finished import REPOSITORY
from tools.cifar10 import arrays
from tools.figure_table import read_rows

from m2fdp.cli import study
from m2fdp.core.errors import InputError
from tools import papers


def test_a_subset_is_the_quickest_that_ten_minutes_have_room_for():
    minutes = {"long": 9, "quick": 2, "slow": 30, "short": 3}
    assert papers.chosen_of(minutes, subset=True) == {"quick": 2, "short": 3}
    assert papers.chosen_of(minutes, subset=False) == minutes


def test_a_papers_studies_run_one_after_the_other(monkeypatch, project, capsys):
    started = []

    class Done:
        returncode = 0

    def run(command, **options):
        started.append(command[3:])
        return Done()

    monkeypatch.setattr(papers.subprocess, "run", run)
    options = {"params": {"dataset": {"root": "here"}}, "workers": 2, "env": None, "resume": True}
    papers.run_paper(REPOSITORY, "D", True, options)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("D: ") and "minute" in told[0] and "GB in data and mlruns." in told[0]
    papers.run_paper(REPOSITORY, "C", False, options)
    words = [row.study for row in read_rows(REPOSITORY) if row.figure.startswith("C ")]
    asked = ["--resume", "--params=dataset.root=here", "--workers=2"]
    assert started == [["study", *each.split(), *asked] for each in words]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["paper", "X"], "study paper = 'X': is none of J, C, H, G, D"),
        (["paper"], "study paper = None: is none of J"),
        (["paper", "J", "--scale=smoke"], "--scale = 'smoke': has no part in `kedro study paper`"),
        (["quickstart", "J"], "study = 'J': has a part in `kedro study paper` only"),
        (["quickstart", "--subset"], "study = '--subset': has a part in `kedro study paper` only"),
    ],
)
def test_what_is_no_paper_is_refused_in_a_line(words, line, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    ended = CliRunner().invoke(study, words)
    assert ended.exit_code == 2 and ended.output.startswith(f"Error: {line}"), ended.output


def test_the_official_archive_becomes_arrays(tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    with tarfile.open(path, "w:gz") as archive:
        for number, name in enumerate(names):
            image = np.arange(3 * 1024) % 251 + number  # red, then green, then blue, row by row
            content = pickle.dumps({b"data": image[None].astype(np.uint8), b"labels": [number]})
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    with pytest.raises(InputError, match="is not CIFAR-10's"):
        arrays(path)
    found = arrays(path, hashlib.md5(path.read_bytes()).hexdigest())
    assert found["x_train"].shape == (5, 32, 32, 3) and found["y_train"].tolist() == [0, 1, 2, 3, 4]
    assert found["x_test"].shape == (1, 32, 32, 3) and found["y_test"].tolist() == [5]
    # The second pixel's red, green and blue.
    assert found["x_train"][0, 0, 1].tolist() == [1, 1025 % 251, 2049 % 251]
