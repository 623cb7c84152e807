"""What MLflow is told of a run when it begins: its configuration, its code and its data."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedro.pipeline import Pipeline
from mlflow import MlflowClient
from mlflow.entities import Param, Run, RunTag

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config, essentials, flatten
from m2fdp.core.experiment.idle import read_keys
from m2fdp.core.experiment.request import Request
from m2fdp.pipelines.mlflow_internals import MAX_PARAMS_TAGS_PER_BATCH
from m2fdp.pipelines.provenance import code_tags, data_tags, run_tags, warn_of_other_code
from m2fdp.pipelines.recording import SOURCE
from m2fdp.pipelines.resuming import Unfinished
from m2fdp.pipelines.selection import reading
from m2fdp.pipelines.tracking import forget_end
from m2fdp.reporting.naming import command

# What of its configuration a result depends on, as an artifact; training keeps the same beside the
# model.
CONFIGURATION = "configuration.json"
# Of Kedro's parameters of a run, which become tags: places of this machine, objects, and what is
# elsewhere on the run's page.
_UNTOLD = frozenset(
    {"project_path", "run_id", "session_id", "runner", "extra_params", "runtime_params"}
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Beginning:
    """What is about to run.

    Attributes:
        plan: the algorithm's.
        pipeline: the nodes.
        names: the pipelines that were asked for; none is the default one.
    """

    config: Config
    plan: Plan
    pipeline: Pipeline
    names: Sequence[str]


def tell_beginning(
    run: Run,
    beginning: Beginning,
    run_params: Mapping[str, Any],
    project: Path,
    unfinished: Unfinished | None,
) -> None:
    """Log tags, parameters and configuration; of a run that goes on, MLflow has the latter two.

    Args:
        run_params: Kedro's parameters of the run.
        unfinished: the run as it was left, if it goes on.
    """
    config, client, run_id = beginning.config, MlflowClient(), run.info.run_id
    code = code_tags(project)
    tags = {key: str(v) for key, v in run_params.items() if v and key not in _UNTOLD}
    tags |= run_tags(config) | code | data_tags(beginning.pipeline)
    repeat = command(config, beginning.names)
    tags |= {"mlflow.source.name": SOURCE, "kedro_command": repeat}
    params: list[Param] = []
    if unfinished is None:
        params = [Param(key, str(value)) for key, value in _read_parameters(beginning).items()]
    else:
        round_ = unfinished.checkpoint.progress.state.round
        logger.info("Training goes on after round %d.", round_)
        warn_of_other_code(unfinished.run, code)
        tags["resumed_after_round"] = str(round_)
        forget_end(unfinished.run)
    listed = [RunTag(key, value) for key, value in tags.items()]
    for first in range(0, max(1, len(params)), MAX_PARAMS_TAGS_PER_BATCH):
        batch = params[first : first + MAX_PARAMS_TAGS_PER_BATCH]
        client.log_batch(run_id, params=batch, tags=[] if first else listed)
    if unfinished is None:
        client.log_dict(run_id, essentials(config), CONFIGURATION)


def _read_parameters(beginning: Beginning) -> dict[str, Any]:
    """The keys that the run reads, with their values."""
    config, outputs = beginning.config, beginning.pipeline.all_outputs()
    unread = {"resume"} | {name for name in ("audit", "attack") if name not in outputs}
    read = read_keys(Request(config, beginning.plan, reading(beginning.pipeline)))
    every = flatten(config.model_dump(exclude=unread))
    # Of a key that is a mapping, each entry is a parameter: training.local_aggregation.1.
    return {k: v for k, v in every.items() if k in read or k.rpartition(".")[0] in read}
