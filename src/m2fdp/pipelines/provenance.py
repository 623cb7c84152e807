"""Where a run's results come from: its place among the runs, and the code that computes them."""

from __future__ import annotations

import logging
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from kedro.pipeline import Pipeline
from mlflow.entities import Run

from m2fdp.algorithms import get_algorithm
from m2fdp.config import Config
from m2fdp.data.features.mapping import fitted_on
from m2fdp.privacy.outside import DIAGNOSTICS
from m2fdp.simulation.checkpoints import differences

LIBRARIES = (
    "dp-accounting",
    "great-expectations",
    "kedro",
    "m2fdp",
    "mlflow",
    "numpy",
    "opacus",
    "pandas",
    "scikit-learn",
    "torch",
    "torchvision",
)
FROM_DISK = "from disk"  # the tag `split` of a run that did not make its own

logger = logging.getLogger(__name__)


def run_tags(config: Config) -> dict[str, str]:
    """How reports find and group the run."""
    tags = {
        "algorithm": config.algorithm,
        "role": get_algorithm(config.algorithm).role,
        "dataset": config.dataset.name,
        "seed": str(config.seed),
        "cell": config.cell,
    }
    if sources := fitted_on(config.features):
        tags["features"] = f"{config.features.map}, fitted on {', '.join(sources)}"
    return tags


def data_tags(pipeline: Pipeline) -> dict[str, str]:
    """Whether the split lay on the disk, and which outputs epsilon does not cover."""
    tags = {"split": FROM_DISK} if "manifest" in pipeline.inputs() else {}
    if diagnostics := DIAGNOSTICS & pipeline.all_outputs():
        # The configuration is with every run, whether or not there is a model beside it.
        tags["diagnostic"] = ", ".join(sorted(diagnostics | {"model_configuration"}))
    return tags


def code_tags(project: Path) -> dict[str, str]:
    """What computes: the versions of libraries, the CPU's instructions, which decide how sums are
    rounded, and this project's own commit."""
    import torch  # takes long, and what is refused before needs none

    tags = {f"version.{library}": version(library) for library in LIBRARIES}
    tags["version.python"] = platform.python_version()
    tags["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    commit = _git(project, "rev-parse", "HEAD")
    if commit is not None:
        tags["git_commit"] = commit
        tags["git_dirty"] = str(bool(_git(project, "status", "--porcelain"))).lower()
    return tags


def warn_of_other_code(run: Run, code: dict[str, str]) -> None:
    """A line for each tag of `code_tags` in which the run that goes on began otherwise."""
    before = {key: run.data.tags.get(key) for key in code}
    for key, (old, new) in differences(before, code).items():
        logger.warning(
            "%s was %s and is %s: the results may differ from an uninterrupted run's.",
            key,
            old,
            new,
        )


def _git(project: Path, *arguments: str) -> str | None:
    """What git answers, or None without git or outside a repository."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(project), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
