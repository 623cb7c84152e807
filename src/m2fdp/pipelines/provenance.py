"""Where a run's results come from: its place among the runs, and the code that computes them."""

from __future__ import annotations

import logging
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from kedro.pipeline import Pipeline
from mlflow.entities import Run

from m2fdp.checkpoints.files import differences
from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.config import Config, own_names
from m2fdp.core.own_code import imported_since, sources
from m2fdp.core.privacy.outside import DIAGNOSTICS
from m2fdp.features.mapping import fitted_on

# What sums are computed by, and what draws, checks and files them.
COMPUTING = ("numpy", "pandas", "scikit-learn", "torch", "torchvision")
OTHERS = ("dp-accounting", "great-expectations", "kedro", "m2fdp", "mlflow")
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
    """What computes: see `rounding_tags`, the versions of the other libraries, and this project's
    own commit."""
    tags = rounding_tags() | {f"version.{library}": version(library) for library in OTHERS}
    commit = _git(project, "rev-parse", "HEAD")
    if commit is not None:
        tags["git_commit"] = commit
        tags["git_dirty"] = str(bool(_git(project, "status", "--porcelain"))).lower()
    return tags


def rounding_tags() -> dict[str, str]:
    """What decides how sums are rounded: the processor, its instructions as torch takes them, the
    versions of what computes, and a digest of this package, which a commit need not tell."""
    import torch  # takes long, and what is refused before needs none

    return {
        **{f"version.{library}": version(library) for library in COMPUTING},
        "version.python": platform.python_version(),
        "cpu": _cpu(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "code": _digest_of_code(Path(__file__).parents[1]),
    }


def computed_by(config: Config) -> dict[str, str]:
    """The same of a run's rounds here, with where they are computed, as its checkpoints keep it."""
    where = {"device": config.device, "execution.engine": config.execution.engine}
    return rounding_tags() | where


def own_code(config: Config, before: Mapping[str, str]) -> dict[str, str]:
    """Digests of the user's own modules, by module, as checkpoints keep them.

    Args:
        before: those that are known; a module that has two matches nothing any more.
    """
    if not (names := own_names(config)):
        return {}
    found = sources([*names.values(), *imported_since()])
    digests = {module: source.digest for module, source in found.items()}
    for module, old in before.items():
        new = digests.get(module, old)
        digests[module] = old if new in (old, *old.split()) else f"{old} {new}"
    return digests


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


def _cpu() -> str:
    """The processor's name, by which libraries choose in which order they sum."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


@cache
def _digest_of_code(package: Path) -> str:
    """A few digits that tell a package's modules from others; of a process, as it has begun."""
    digest = sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _git(project: Path, *arguments: str) -> str | None:
    """What git answers, or None without git or outside a repository."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(project), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
