"""`python -m benchmarks.waiting`: what people wait for beside the training itself, on digits.

A `kedro run` of one round, and what a study's cell takes over its training, both against the time
that `import torch, mlflow, kedro` alone takes at that moment; and a run and a study that are
refused.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).parents[1]
IMPORTS = "import torch, mlflow, kedro"
RUN = "from kedro.framework.cli import main; main()"
CELL = {
    "dataset": {"name": "digits"},
    "partition": {"scheme": "labels_per_device", "labels_per_device": 3},
    "topology": {"fanouts": [10, 5], "trust": {"ratios": [0.5]}},
    "model": {"name": "softmax"},
    "privacy": {"epsilon": 4.0, "delta": 1e-5},
    "training": {"rounds": 1},
}
ALGORITHMS = ("hfl", "hfl_dp", "m2fdp")


@dataclass(frozen=True)
class Seconds:
    """Of a process and its children, by the clock and by the processors."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Seconds:
        """Since some moment."""
        times = os.times()
        cpu = times.user + times.system + times.children_user + times.children_system
        return cls(times.elapsed, cpu)

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall - other.wall, self.cpu - other.cpu)


@contextmanager
def project() -> Iterator[Path]:
    """A copy of the configuration with data and store of its own, as working directory."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ignored = shutil.ignore_patterns("local")
        shutil.copytree(REPOSITORY / "conf", folder / "conf", ignore=ignored)
        for file in ("pyproject.toml", ".telemetry"):
            shutil.copy(REPOSITORY / file, folder)
        for below in ("conf/local", "src", "data", "mlruns"):
            (folder / below).mkdir()
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def taken(code: str, *arguments: str, ends_with: int = 0) -> Seconds:
    """By a Python process of its own, which must end with that code."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "src"), os.environ.get("PYTHONPATH")]))
    begun = Seconds.now()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    seconds = Seconds.now() - begun
    if done.returncode != ends_with:
        raise RuntimeError(done.stderr.decode())
    return seconds


def starts(turns: int) -> list[tuple[Seconds, Seconds]]:
    """Of each turn the imports alone, and `kedro run` of one round; the first turn is no part."""
    with project():
        pairs = [
            (taken(IMPORTS), taken(RUN, "run", "--params=training.rounds=1"))
            for _ in range(turns + 1)
        ]
    return pairs[1:]


def news(turns: int) -> list[tuple[Seconds, Seconds]]:
    """Of each turn `kedro run` with a split that is known, and with one that nobody has checked;
    the first turn is no part."""

    def timed() -> Seconds:
        return taken(RUN, "run", "--params=training.rounds=1")

    with project() as folder:
        pairs = []
        for _ in range(turns + 1):
            shutil.rmtree(folder / "data")
            (folder / "data").mkdir()
            new = timed()
            pairs.append((timed(), new))
    return pairs[1:]


def refusals(turns: int) -> list[tuple[Seconds, Seconds]]:
    """Of each turn a `kedro run` and a `kedro study` whose algorithm there is not; the first turn
    is no part."""
    with project():
        pairs = [
            (
                taken(RUN, "run", "--params=algorithm=none", ends_with=2),
                taken(RUN, "study", "sweep", "--over=algorithm=none", ends_with=2),
            )
            for _ in range(turns + 1)
        ]
    return pairs[1:]


def overheads(cells: int) -> list[Seconds]:
    """What each cell of a study takes in a worker over its training, the first left out."""
    with project() as folder:
        return list(_overheads(folder, cells))[1:]


def _overheads(folder: Path, cells: int) -> Iterator[Seconds]:
    import mlflow
    from kedro.framework.startup import bootstrap_project

    bootstrap_project(folder)
    from m2fdp.experiment import Experiment
    from m2fdp.pipelines import tracking
    from m2fdp.studies.worker import PARENT_TAG, Job, run_cell

    uri = tracking.tracking_uri(folder)
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.create_experiment("m2fdp", tracking.artifact_location(folder))
    parent = mlflow.MlflowClient().create_run(experiment).info.run_id
    training: list[Seconds] = []
    train = Experiment.train

    def timed(*arguments: Any, **others: Any) -> Any:
        begun = Seconds.now()
        try:
            return train(*arguments, **others)
        finally:
            training.append(Seconds.now() - begun)

    Experiment.train = timed  # type: ignore[method-assign]
    try:
        for number in range(cells):
            seed, algorithm = divmod(number, len(ALGORITHMS))
            cell = f"waiting/{number}"
            params = {"threads": 1, "algorithm": ALGORITHMS[algorithm], "seed": seed, "cell": cell}
            job = Job(
                project=folder,
                env=None,
                tracking_uri=uri,
                experiment_id=experiment,
                run_name=str(number),
                tags={PARENT_TAG: parent, "study": "waiting", "cell_hash": str(number)},
                runtime_params=params | CELL,
                log=folder / f"{number}.log",
            )
            begun = Seconds.now()
            outcome = run_cell(job)
            whole = Seconds.now() - begun
            if "run_id" not in outcome:
                raise RuntimeError(job.log.read_text())
            yield whole - training.pop()
    finally:
        Experiment.train = train  # type: ignore[method-assign]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cells", type=int, default=10)
    asked = parser.parse_args(arguments)
    pairs = starts(asked.turns)
    beside, unchecked = overheads(asked.cells), news(asked.turns)
    refused = refusals(asked.turns)
    print("| | wall, s | CPU, s |\n| --- | ---: | ---: |")
    for name, rows in (
        ("imports alone", [imports for imports, _ in pairs]),
        ("`kedro run`, one round", [run for _, run in pairs]),
        ("the same, of a split that is new", [new for _, new in unchecked]),
        ("a cell of a study, less its training", beside),
        ("`kedro run` that is refused", [run for run, _ in refused]),
        ("`kedro study` that is refused", [study for _, study in refused]),
    ):
        wall, cpu = median(row.wall for row in rows), median(row.cpu for row in rows)
        print(f"| {name} | {wall:.2f} | {cpu:.2f} |")
    wall = median(run.wall / imports.wall for imports, run in pairs)
    cpu = median(run.cpu / imports.cpu for imports, run in pairs)
    print(f"| `kedro run` over the imports | {wall:.2f} | {cpu:.2f} |")
    wall = median(new.wall / known.wall for known, new in unchecked)
    cpu = median(new.cpu / known.cpu for known, new in unchecked)
    print(f"| a new split over a known one | {wall:.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    main()
