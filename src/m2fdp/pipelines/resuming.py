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

from m2fdp.checkpoints.files import Checkpoint, differences, load_latest
from m2fdp.core.config import Config, completed, essentials, own_names
from m2fdp.core.config.retired import RETIRED
from m2fdp.core.errors import InputError
from m2fdp.core.own_code import sources
from m2fdp.core.privacy.summary import TRAINED_AGAIN, trained_again
from m2fdp.core.privacy.verdict import Verdict, run_digest
from m2fdp.pipelines.mlflow_internals import is_unknown
from m2fdp.pipelines.provenance import FROM_DISK, computed_by
from m2fdp.pipelines.tracking import held_by_another_process

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
        gone = [key for key in changed if key in RETIRED]  # with a value that no run has any more
        remedy = "go on with the version that made it" if gone else "give the former values"
        raise InputError(
            "resume",
            True,
            f"the checkpoint is of another configuration: {_listed(changed)}; {remedy}, or leave "
            "resume out to start anew",
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


def check_own_code(unfinished: Unfinished, config: Config) -> None:
    """Refuse modules of the user's own that are not as the run began with them.

    Raises:
        InputError: it names the file and the key.
    """
    names, before = own_names(config), unfinished.checkpoint.own_code
    expected = sources(names.values()).keys() | before.keys()
    today = sources([*names.values(), *before])
    for module in sorted(expected):
        source = today.get(module)
        if before.get(module) == (source and source.digest):
            continue
        users = [key for key, name in names.items() if module in sources([name])]
        key = (users or [*names])[0]
        raise InputError(
            "resume",
            True,
            f"{source.file if source else module} is not as the run began with it "
            f"({key}={names[key]}): a round that is trained again would be released twice under "
            "one noise; restore it, or leave resume out and give another seed",
        )


def computed_otherwise(unfinished: Unfinished, config: Config) -> str:
    """Differences in machine or code that could round repeated rounds otherwise, in words; empty
    if there are none."""
    here = computed_by(config)
    before = unfinished.checkpoint.computed_by
    without_file = [name for name, digest in unfinished.checkpoint.own_code.items() if not digest]
    reasons = [f"{name}, code of your own, has no file to compare" for name in without_file]
    for key, value in here.items():
        former = dict.fromkeys(each[key] for each in before)
        if former.keys() - {value}:
            reasons.append(f"{key} was {', '.join(former)} and is {value}")
    if config.device != "cpu":
        reasons.append(f"device is {config.device}, which need not repeat its own sums")
    if config.execution.engine != "local":
        reasons.append(f"execution.engine is {config.execution.engine}: nodes are not compared")
    return ", ".join(reasons)


def resumed_verdict(
    unfinished: Unfinished, config: Config, private: bool, known: Verdict | None
) -> Verdict:
    """What a run that goes on rests on, beside what its configuration says.

    Args:
        private: whether it has a promise to keep.
        known: its verdict so far.
    """
    otherwise = computed_otherwise(unfinished, config)
    # Other draws are a condition of their own.
    again = [trained_again(otherwise)] if otherwise and not config.privacy.secure_rng else []
    others = () if known is None else known.conditions
    # What it says of rounds that are trained again, the checkpoint knows better.
    kept = [line for line in others if not line.startswith(TRAINED_AGAIN)]
    return Verdict(run_digest(config), "", private, (*again, *kept))


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
