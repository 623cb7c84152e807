"""What lies in a cell is of one configuration: that of its model, where it has one. So is what is
said of the run, by whatever command: its verdict can only be lowered until the next training."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kedro.io import CatalogProtocol, MemoryDataset
from kedro.pipeline import Node, Pipeline

from m2fdp.core.config import Config
from m2fdp.core.experiment import promise
from m2fdp.core.privacy import verdict
from m2fdp.core.privacy.verdict import LOST, OTHER_RECORDS, VERDICT, Verdict, kept, lowered
from m2fdp.pipelines import evaluation, privacy
from m2fdp.pipelines.evaluation import changed, check_trained_with
from m2fdp.pipelines.recording import CatalogEntries
from m2fdp.pipelines.resuming import Unfinished, resumed_verdict

SUMMARY = "privacy_summary"

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
            if self._reads_summary:
                self._lower_summary(self._earlier.rests_on)

    def node_ran(self, node: Node, inputs: Mapping[str, Any]) -> None:
        """Keep what is newly found of a model that was trained before, and write what a new one
        promises in the place of what was written before it."""
        if node.name == "train_model" and self._reads_summary:
            self._catalog.save(SUMMARY, inputs["prepared_experiment"].summary())
        if node.name == "summarise_privacy":
            self._lower(promise.conditions(inputs["experiment"]))

    def model_saved(self) -> None:
        """What was found of an earlier model goes with it."""
        verdict.settle(self._entries.cell_folder)
        self._remove_pages()

    def _of_cell(self, config: Config, private: bool) -> Verdict | None:
        """The verdict of the run that has trained, or begun to, in the cell, if it is this one.

        A model without one may rest on anything.
        """
        found, run = kept(self._entries.cell_folder), verdict.run_digest(config)
        if found is not None and (found.run, found.private) == (run, private):
            return found
        is_damaged = found is None and (self._entries.cell_folder / VERDICT).exists()
        if private and (is_damaged or self._may_be_model_of(config)):
            return Verdict(run, "", private, (LOST,))
        return None

    def _may_be_model_of(self, config: Config) -> bool:
        """Whether a model is in the cell, and of this configuration or of an unknown one."""
        if not self._catalog.exists("model"):
            return False
        if not self._catalog.exists("model_configuration"):
            return True
        return not changed(self._catalog.load("model_configuration"), config)

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

    def _lower_summary(self, conditions: Sequence[str]) -> None:
        """Let what an earlier command has written of the promise rest on what is known by now."""
        if not self._catalog.exists(SUMMARY):
            return
        promised = self._catalog.load(SUMMARY)
        if (by_now := lowered(promised, conditions)) != promised:
            self._catalog.save(SUMMARY, by_now)

    def _remove_pages(self) -> None:
        """What evaluation has made of the cell's model."""
        for name in evaluation.create_pipeline().all_outputs():
            self._entries.remove(name)
