"""Which unfinished run `resume` goes on with, and when it must not."""

import logging
from dataclasses import dataclass
from pathlib import Path

from kedro.pipeline import Pipeline
from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, Run
from mlflow.exceptions import MlflowException

from m2fdp.checkpoints.files import Checkpoint, differences, load_latest
from m2fdp.checkpoints.own_sources import sources
from m2fdp.core.config import Config, completed, essentials, own_names
from m2fdp.core.config.retired import RETIRED
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.summary import TRAINED_AGAIN, trained_again
from m2fdp.core.privacy.verdict import Verdict, run_digest
from m2fdp.pipelines.mlflow_internals import UNKNOWN
from m2fdp.pipelines.provenance import FROM_DISK, computed_by
from m2fdp.pipelines.tracking import held_by_another_process

_ANEW = "leave resume out to start anew"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A run as MLflow knows it, and the last that is kept of it."""

    run: Run
    checkpoint: Checkpoint


def find_unfinished(folder: Path, config: Config, tracking_uri: str) -> Unfinished:
    """The run whose checkpoints are in `folder`, of the same configuration and not finished."""
    checkpoint, unreadable = load_latest(folder)
    for path in unreadable:
        logger.warning("Checkpoint %s is damaged; it is passed over.", path)
    if checkpoint is None:
        whole = "whole " if unreadable else ""
        raise refusal(f"there is no {whole}checkpoint in {folder}; {_ANEW}")
    changed = differences(completed(checkpoint.configuration), completed(essentials(config)))
    if changed:
        gone = [key for key in changed if key in RETIRED]  # with a value that no run has any more
        remedy = "go on with the version that made it" if gone else "give the former values"
        listed = ", ".join(f"{key} was {old} and is {new}" for key, (old, new) in changed.items())
        raise refusal(f"the checkpoint is of another configuration: {listed}; {remedy}, or {_ANEW}")
    return Unfinished(_open_run(checkpoint.run, tracking_uri), checkpoint)


def check_continues(unfinished: Unfinished, pipeline: Pipeline) -> None:
    """Refuse nodes by which the run can't go on."""
    if "model" not in pipeline.all_outputs():
        raise refusal("no training is asked for; leave it out")
    own_split = unfinished.run.data.tags.get("split") == FROM_DISK
    if own_split and "manifest" in pipeline.all_outputs():
        raise refusal("the run trains on a split that lay on the disk; add --pipelines=training")


def check_own_code(unfinished: Unfinished, config: Config) -> None:
    """Refuse modules of the user's own that are not as the run began with them."""
    names, before = own_names(config), unfinished.checkpoint.own_code
    expected = sources(names.values()).keys() | before.keys()
    today = sources([*names.values(), *before])
    for module in sorted(expected):
        source = today.get(module)
        if before.get(module) == (source and source.digest):
            continue
        users = [key for key, name in names.items() if module in sources([name])]
        key = (users or [*names])[0]
        raise refusal(
            f"{source.file if source else module} is not as the run began with it "
            f"({key}={names[key]}): a round that is trained again would be released twice under "
            "one noise; restore it, or leave resume out and give another seed"
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
    """What a run that goes on rests on, beside what its configuration says."""
    otherwise = computed_otherwise(unfinished, config)
    again = [trained_again(otherwise)] if otherwise else []
    others = () if known is None else known.conditions
    # What it says of rounds that are trained again, the checkpoint knows better.
    kept = [line for line in others if not line.startswith(TRAINED_AGAIN)]
    return Verdict(run_digest(config), "", private, (*again, *kept))


def _open_run(run_id: str, tracking_uri: str) -> Run:
    try:
        run = MlflowClient(tracking_uri).get_run(run_id)
    except MlflowException as error:
        if error.error_code != UNKNOWN:
            raise
        unknown = f"MLflow at {tracking_uri} does not know its run {run_id}; {_ANEW}"
        raise refusal(unknown) from None
    name = f"run {run.info.run_name} ({run_id})"
    if run.info.lifecycle_stage == LifecycleStage.DELETED:
        raise refusal(f"its {name} is deleted in MLflow; {_ANEW}")
    if run.info.status == "FINISHED":
        raise refusal(f"its {name} is finished; {_ANEW}")
    if held_by_another_process(run):
        raise refusal(f"{name} is still going on; stop it first")
    return run


def refusal(reason: str) -> InputError:
    """Of a run that can't go on."""
    return InputError("resume", True, reason)
