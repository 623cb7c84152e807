"""Where a run's results come from, as MLflow is told when it begins: configuration, code, data."""

import logging
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kedro.pipeline import Pipeline
from mlflow import MlflowClient
from mlflow.entities import Param, Run, RunTag

from m2fdp.checkpoints.files import Checkpoint, differences
from m2fdp.checkpoints.own_sources import imported_since, sources
from m2fdp.core.algorithms import Plan, get_algorithm
from m2fdp.core.config import Config, essentials, flatten, own_names
from m2fdp.core.experiment.request import Request, read_keys
from m2fdp.features.recipe import fitted_on
from m2fdp.pipelines.mlflow_internals import MAX_PARAMS_TAGS_PER_BATCH
from m2fdp.pipelines.selection import asked_for, reading
from m2fdp.pipelines.tracking import forget_end
from m2fdp.reporting.naming import command
from m2fdp.reporting.outside import DIAGNOSTICS

# What sums are computed by, and what draws, checks and files them.
COMPUTING = ("numpy", "pandas", "scikit-learn", "torch", "torchvision")
OTHERS = ("dp-accounting", "great-expectations", "kedro", "m2fdp", "mlflow")
FROM_DISK = "from disk"  # the tag `split` of a run that did not make its own
SOURCE = "kedro run"  # where runs come from; MLflow would name a file of this machine
# What of its configuration a result depends on, as an artifact; training keeps the same beside the
# model.
_CONFIGURATION = "configuration.json"
# Of Kedro's parameters of a run, which become tags: places of this machine, objects, and what is
# elsewhere on the run's page.
_UNTOLD = frozenset(
    {"project_path", "run_id", "session_id", "runner", "extra_params", "runtime_params"}
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A run as MLflow knows it, and the last that is kept of it."""

    run: Run
    checkpoint: Checkpoint


def tell_beginning(
    run: Run,
    config: Config,
    plan: Plan,
    pipeline: Pipeline,
    run_params: Mapping[str, Any],
    unfinished: Unfinished | None,
) -> None:
    """Log tags, parameters and configuration; of a run that goes on, MLflow has the latter two."""
    client, run_id = MlflowClient(), run.info.run_id
    code = code_tags(Path(run_params["project_path"]))
    tags = {key: str(v) for key, v in run_params.items() if v and key not in _UNTOLD}
    tags |= _run_tags(config, pipeline) | code
    repeat = command(config, asked_for(run_params))
    tags |= {"mlflow.source.name": SOURCE, "kedro_command": repeat}
    if unfinished is not None:
        before, round_ = unfinished.run, unfinished.checkpoint.progress.state.round
        logger.info("Training goes on after round %d.", round_)
        former = {key: before.data.tags.get(key) for key in code}
        for key, (old, new) in differences(former, code).items():
            line = "%s was %s and is %s: the results may differ from an uninterrupted run's."
            logger.warning(line, key, old, new)
        tags["resumed_after_round"] = str(round_)
        forget_end(before)
    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    if unfinished is None:
        # The keys that the run reads.
        unread = {"resume"} | ({"audit", "attack"} - pipeline.all_outputs())
        read = read_keys(Request(config, plan, reading(pipeline)))
        params = [
            Param(key, str(value))
            for key, value in flatten(config.model_dump(exclude=unread)).items()
            # Of a key that is a mapping, each entry is a parameter: training.local_aggregation.1.
            if key in read or key.rpartition(".")[0] in read
        ]
        for first in range(0, len(params), MAX_PARAMS_TAGS_PER_BATCH):
            client.log_batch(run_id, params=params[first : first + MAX_PARAMS_TAGS_PER_BATCH])
        client.log_dict(run_id, essentials(config), _CONFIGURATION)


def _run_tags(config: Config, pipeline: Pipeline) -> dict[str, str]:
    """How reports find and group the run, whether its split lay on the disk, and which outputs
    epsilon does not cover."""
    tags = {
        "algorithm": config.algorithm,
        "role": get_algorithm(config.algorithm).role,
        "dataset": config.dataset.name,
        "seed": str(config.seed),
        "cell": config.cell,
    }
    if sources := fitted_on(config.features):
        tags["features"] = f"{config.features.map}, fitted on {', '.join(sources)}"
    if "manifest" in pipeline.inputs():
        tags["split"] = FROM_DISK
    if diagnostics := DIAGNOSTICS & pipeline.all_outputs():
        # The configuration is with every run, whether or not there is a model beside it.
        tags["diagnostic"] = ", ".join(sorted(diagnostics | {"model_configuration"}))
    return tags


def code_tags(project: Path) -> dict[str, str]:
    """What computes: `rounding_tags`, versions of other libraries, and the project's commit."""
    tags = rounding_tags() | {f"version.{library}": version(library) for library in OTHERS}
    commit = _git(project, "rev-parse", "HEAD")
    if commit is not None:
        tags["git_commit"] = commit
        tags["git_dirty"] = str(bool(_git(project, "status", "--porcelain"))).lower()
    return tags


def rounding_tags() -> dict[str, str]:
    """What decides how sums are rounded: processor, its instructions as torch takes them, versions
    of what computes, and a digest of this package, which a commit need not tell."""
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
    engine = config.execution.engine
    return rounding_tags() | {"device": config.device, "execution.engine": engine}


def own_code(config: Config, before: Mapping[str, str]) -> dict[str, str]:
    """Digests of the user's own modules, by module, as checkpoints keep them, added to those that
    were known `before`; a module that has two matches nothing any more."""
    if not (names := own_names(config)):
        return {}
    found = sources([*names.values(), *imported_since()])
    digests = {module: source.digest for module, source in found.items()}
    for module, old in before.items():
        new = digests.get(module, old)
        digests[module] = old if new in (old, *old.split()) else f"{old} {new}"
    return digests


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
    command = ["git", "-C", str(project), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.decode(errors="replace").strip()
