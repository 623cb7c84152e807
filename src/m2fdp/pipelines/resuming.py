"""Which unfinished run `resume` goes on with, and when it must not."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kedro.pipeline import Pipeline
from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, Run
from mlflow.exceptions import MlflowException

from m2fdp.config import Config, completed, essentials
from m2fdp.errors import InputError
from m2fdp.pipelines.mlflow_internals import is_unknown
from m2fdp.pipelines.provenance import FROM_DISK, computed_by
from m2fdp.pipelines.tracking import held_by_another_process
from m2fdp.simulation.checkpoints import Checkpoint, differences, load_latest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A run as MLflow knows it, and the last that is kept of it."""

    run: Run
    checkpoint: Checkpoint


def find_unfinished(folder: Path, config: Config, tracking_uri: str) -> Unfinished:
    """The run whose checkpoints are in `folder`, of the same configuration and not finished.

    Raises:
        InputError: there is none.
    """
    checkpoint, unreadable = load_latest(folder)
    for path in unreadable:
        logger.warning("Checkpoint %s is damaged; it is passed over.", path)
    if checkpoint is None:
        raise _refusal(f"there is no {'whole ' if unreadable else ''}checkpoint in {folder}")
    changed = differences(completed(checkpoint.configuration), completed(essentials(config)))
    if changed:
        raise InputError(
            "resume",
            True,
            f"the checkpoint is of another configuration: {_listed(changed)}; give the former "
            "values, or leave resume out to start anew",
        )
    return Unfinished(_open_run(checkpoint.run, tracking_uri), checkpoint)


def check_continues(unfinished: Unfinished, pipeline: Pipeline) -> None:
    """Refuse nodes by which the run can't go on.

    Raises:
        InputError: they do not train, or would make another split than the run began with.
    """
    if "model" not in pipeline.all_outputs():
        raise InputError("resume", True, "no training is asked for; leave it out")
    own_split = unfinished.run.data.tags.get("split") == FROM_DISK
    if own_split and "manifest" in pipeline.all_outputs():
        remedy = "the run trains on a split that lay on the disk; add --pipelines=training"
        raise InputError("resume", True, remedy)


def rounded_otherwise(unfinished: Unfinished | None, config: Config) -> str:
    """What may round the rounds that are trained again otherwise than before, in words; empty
    where nothing may: the same machine repeats its sums to the byte, with the same code.
    """
    if unfinished is None:
        return ""
    here = computed_by(config)
    before = unfinished.checkpoint.computed_by
    reasons = []
    for key, value in here.items():
        former = dict.fromkeys(each[key] for each in before)
        if former.keys() - {value}:
            reasons.append(f"{key} was {', '.join(former)} and is {value}")
    if config.device != "cpu":
        reasons.append(f"device is {config.device}, which need not repeat its own sums")
    if config.execution.engine != "local":
        reasons.append(f"execution.engine is {config.execution.engine}: nodes are not compared")
    return ", ".join(reasons)


def _open_run(run_id: str, tracking_uri: str) -> Run:
    try:
        run = MlflowClient(tracking_uri).get_run(run_id)
    except MlflowException as error:
        if not is_unknown(error):
            raise
        raise _refusal(f"MLflow at {tracking_uri} does not know its run {run_id}") from None
    if run.info.lifecycle_stage == LifecycleStage.DELETED:
        raise _refusal(f"its run {run.info.run_name} ({run_id}) is deleted in MLflow")
    if run.info.status == "FINISHED":
        raise _refusal(f"its run {run.info.run_name} ({run_id}) is finished")
    if held_by_another_process(run):
        raise InputError(
            "resume", True, f"run {run.info.run_name} ({run_id}) is still going on; stop it first"
        )
    return run


def _refusal(reason: str) -> InputError:
    return InputError("resume", True, f"{reason}; leave resume out to start anew")


def _listed(changed: Mapping[str, tuple[object, object]]) -> str:
    return ", ".join(f"{key} was {old} and is {new}" for key, (old, new) in changed.items())
