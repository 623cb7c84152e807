"""What lies in a run's cell: the unfinished run that `resume` goes on with, and its verdict.
Commands can only lower that of the model until the next training."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kedro.io import CatalogProtocol, MemoryDataset
from kedro.pipeline import Node, Pipeline
from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, Run
from mlflow.exceptions import MlflowException

from m2fdp.checkpoints import verdict
from m2fdp.checkpoints.files import differences, load_latest
from m2fdp.checkpoints.own_sources import sources
from m2fdp.checkpoints.verdict import LOST, OTHER_RECORDS, VERDICT, Verdict, kept, lowered
from m2fdp.core.config import Config, completed, essentials, own_names
from m2fdp.core.errors import InputError
from m2fdp.given.retired import RETIRED
from m2fdp.pipelines import evaluation, privacy
from m2fdp.pipelines.configuration import CatalogEntries
from m2fdp.pipelines.evaluation import changed, check_trained_with
from m2fdp.pipelines.mlflow_internals import UNKNOWN
from m2fdp.pipelines.provenance import FROM_DISK, Unfinished, computed_by
from m2fdp.pipelines.tracking import held_by_another_process

SUMMARY = "privacy_summary"
_TRAINED_AGAIN = "nobody saw the rounds that an interruption lost and that are trained again, "
_ANEW = "leave resume out to start anew"

logger = logging.getLogger(__name__)


def check_promise(pipeline: Pipeline, catalog: CatalogProtocol, config: Config) -> None:
    """Refuse to leave the promise of one configuration beside the model and the card of another.

    A run that trains replaces the model too.
    """
    outputs = pipeline.all_outputs()
    if "model" in outputs or not privacy.create_pipeline().all_outputs() & outputs:
        return
    if all(map(catalog.exists, ("model", "model_configuration"))):
        remedy = "give that, or this run a cell of its own with cell=NAME"
        check_trained_with(catalog.load("model_configuration"), config, remedy)


def find_unfinished(folder: Path, config: Config, tracking_uri: str) -> Unfinished:
    """The run whose checkpoints are in `folder`, of the same configuration and not finished."""
    checkpoint, unreadable = load_latest(folder)
    for path in unreadable:
        logger.warning("Checkpoint %s is damaged; it is passed over.", path)
    if checkpoint is None:
        whole = "whole " if unreadable else ""
        raise refusal(f"there is no {whole}checkpoint in {folder}; {_ANEW}")
    others = differences(completed(checkpoint.configuration), completed(essentials(config)))
    if others:
        gone = RETIRED.keys() & others  # with a value that no run has any more
        remedy = "go on with the version that made it" if gone else "give the former values"
        listed = ", ".join(f"{key} was {old} and is {new}" for key, (old, new) in others.items())
        raise refusal(f"the checkpoint is of another configuration: {listed}; {remedy}, or {_ANEW}")
    return Unfinished(_open_run(checkpoint.run, tracking_uri), checkpoint)


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
        key = next((k for k, name in names.items() if module in sources([name])), [*names][0])
        raise refusal(
            f"{source.file if source else module} is not as the run began with it "
            f"({key}={names[key]}): a round that is trained again would be released twice under "
            "one noise; restore it, or leave resume out and give another seed"
        )


def computed_otherwise(unfinished: Unfinished, config: Config) -> str:
    """Differences in machine or code that could round repeated rounds otherwise, in words; empty
    if there are none."""
    before, own_code = unfinished.checkpoint.computed_by, unfinished.checkpoint.own_code
    reasons = [
        f"{name}, code of your own, has no file to compare"
        for name, digest in own_code.items()
        if not digest
    ]
    for key, value in computed_by(config).items():
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
    # Draws repeat: noise that is the same does not hide a difference.
    again = f"{_TRAINED_AGAIN}under the same noise and perhaps computed otherwise "
    again += f"({otherwise}): else the difference of the two has no noise"
    # What it says of rounds that are trained again, the checkpoint knows better.
    others = () if known is None else known.conditions
    others = tuple(line for line in others if not line.startswith(_TRAINED_AGAIN))
    return Verdict(verdict.run_digest(config), "", private, (again,) * bool(otherwise) + others)


class CellVerdict:
    """The verdict of the model in a run's cell, as the run's nodes learn more of it.

    The run's `assemble` finds what is known at its start as `known` in the catalog: None for a
    training that begins anew.
    """

    def __init__(
        self,
        entries: CatalogEntries,
        pipeline: Pipeline,
        catalog: CatalogProtocol,
        config: Config,
        private: bool,
        unfinished: Unfinished | None,
    ) -> None:
        self._entries, self._catalog = entries, catalog
        self._reads_summary = SUMMARY in pipeline.inputs()
        trains, known = "model" in pipeline.all_outputs(), None
        if unfinished is not None or not trains:
            known = self._of_cell(config, private)
        if unfinished is not None:
            known = resumed_verdict(unfinished, config, private, known)
        catalog["known"] = MemoryDataset(known, copy_mode="assign")
        self._earlier = None if trains else known
        if self._earlier is not None:
            self._lower(self._earlier.rests_on)  # one that was lost stays so
            if self._reads_summary and catalog.exists(SUMMARY):
                promised = catalog.load(SUMMARY)
                if (by_now := lowered(promised, self._earlier.rests_on)) != promised:
                    catalog.save(SUMMARY, by_now)

    def node_ran(self, node: Node, inputs: Mapping[str, Any]) -> None:
        """Keep what is newly found of a model that was trained before, and write what a new one
        promises in the place of what was written before it."""
        if node.name == "train_model" and self._reads_summary:
            self._catalog.save(SUMMARY, inputs["prepared_experiment"].summary())
        if node.name == "summarise_privacy":
            self._lower(inputs["experiment"].conditions())

    def model_saved(self) -> None:
        """What was found of an earlier model goes with it."""
        verdict.settle(self._entries.cell_folder)
        self._remove_pages()

    def _of_cell(self, config: Config, private: bool) -> Verdict | None:
        """The verdict of the run that has trained, or begun to, in the cell, if it is this one.

        A model without one, of this configuration or of an unknown one, may rest on anything.
        """
        folder, exists = self._entries.cell_folder, self._catalog.exists
        found, run = kept(folder), verdict.run_digest(config)
        if found is not None and (found.run, found.private) == (run, private):
            return found
        is_lost, made_with = found is None and (folder / VERDICT).exists(), "model_configuration"
        if private and not is_lost and exists("model"):
            is_lost = not (exists(made_with) and changed(self._catalog.load(made_with), config))
        return Verdict(run, "", private, (LOST,)) if private and is_lost else None

    def _lower(self, conditions: Sequence[str]) -> None:
        """Let the verdict rest on what this command has found, too; not of other records, which
        say nothing of the model. Pages that said more go."""
        if (earlier := self._earlier) is None:
            return
        folder = self._entries.cell_folder
        added = [line for line in conditions if line not in earlier.rests_on]
        said_more = earlier.guarantee == "verified" if added else kept(folder) != earlier
        if OTHER_RECORDS in added:
            return
        verdict.keep(folder, replace(earlier, conditions=(*earlier.conditions, *added)))
        if said_more:
            logger.warning(
                "The cell's model is conditional from now on; --pipelines=evaluation writes its "
                "card anew."
            )
            self._remove_pages()

    def _remove_pages(self) -> None:
        """What evaluation has made of the cell's model."""
        for name in evaluation.create_pipeline().all_outputs():
            self._entries.remove(name)
