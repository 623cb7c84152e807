"""`Parts`: what a run is put together from, whatever its rounds: records, split and network."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.data.dataset import Dataset, features, of_unit_norm
from m2fdp.core.data.manifest import DeviceSamples, by_name, held_out, make_manifest, shards_of
from m2fdp.core.data.partitioners import Names
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.engine.minibatches import Shards, sampling_rates
from m2fdp.core.engine.rules import is_known
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.metrics import Metric
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.registry import Model, build_model
from m2fdp.core.own_code import GIVEN
from m2fdp.core.privacy.calibration import check_delta
from m2fdp.core.rooms import brought
from m2fdp.core.streams import digest_of
from m2fdp.core.topology.builders import build_tree
from m2fdp.core.topology.network import Network, weighted
from m2fdp.core.topology.tree import Tree


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """A configuration with its records, split and network, each made when first asked for.

    Attributes:
        given_dataset: data set in the place of the configured one.
        given_manifest: split in the place of the configured one, with the columns of
            `m2fdp.core.data.manifest.make_manifest`.
        given_plan: what `check_config` has returned for this configuration.
        known: sentences on what epsilon rests on that earlier commands have found.

    Raises:
        InputError: the configuration contradicts itself.
    """

    config: Config
    given_dataset: Dataset | None = None
    given_manifest: pd.DataFrame | None = None
    given_plan: Plan | None = None
    known: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _ = self.plan  # which checks the configuration
        if self.given_dataset is not None:
            _ = self.dataset  # which checks it

    @cached_property
    def plan(self) -> Plan:
        """The algorithm's: network, schedule, and whether it is private."""
        return check_config(self.config) if self.given_plan is None else self.given_plan

    @cached_property
    def dataset(self) -> Dataset:
        """The records, if the model is for labels of their kind."""
        if self.given_dataset is not None:
            dataset: Dataset = GIVEN["dataset"](self.given_dataset)
        else:
            dataset = load_dataset(self.config.dataset, seed=self.config.seed)
        GIVEN["labels"](self.config.model, dataset)
        return dataset

    @cached_property
    def inputs(self) -> Dataset:
        """The records as models take them, which are computed now if no run has before."""
        return self.inputs_of(self.dataset)

    def inputs_of(
        self, dataset: Dataset, on_chunk: Callable[[int, int], None] = lambda done, total: None
    ) -> Dataset:
        """The data set with what models take for its images: pixels, over the image's length if
        so configured. `on_chunk` hears how many records are done, of how many."""
        set_exact_arithmetic()
        return of_unit_norm(dataset) if self.config.dataset.scale == "unit_norm" else dataset

    @property
    def input_shape(self) -> Shape:
        """(C, H, W) of `inputs`, known before they are computed."""
        return self.dataset.shape

    def build_model(self, seed: int) -> Model:
        """The configured model with its first weights."""
        return build_model(self.config.model, *self.classified, seed)

    @property
    def classified(self) -> tuple[Shape, int]:
        """What models are for: the shape of inputs, and the number of classes."""
        return self.input_shape, self.dataset.n_classes

    @property
    def manifest(self) -> pd.DataFrame:
        """Who holds which record, by the devices' names where `topology.edges` has any."""
        _ = self.metrics  # refused before anything is written
        return by_name(self.dealt, self._tree_and_names[1])

    @property
    def dealt(self) -> pd.DataFrame:
        """Who holds which record, by the devices' numbers.

        Raises:
            InputError: records can't be dealt as asked, a given manifest is none of this data set
                for these devices, or `check_split` refuses.
        """
        return self._split[0]

    @cached_property
    def _split(self) -> tuple[pd.DataFrame, list[str]]:
        config, dataset, (tree, names) = self.config, self.dataset, self._tree_and_names
        partition, manifest = config.partition, self.given_manifest
        if manifest is None:
            edges = tree.ancestors[tree.depth - 1]
            manifest = make_manifest(dataset, partition, edges, config.seed, names)
        else:
            manifest = GIVEN["manifest"](manifest, dataset, names, partition.held_out_by)
        self.check_split(shards_of(manifest).sizes)
        lines = [line for of in brought("splits") for line in of(dataset, manifest)]
        return manifest, lines

    def check_split(self, sizes: np.ndarray) -> None:
        """What can be found wrong once devices have D_j records, int64 (N_L,), before anything is
        written.

        Raises:
            InputError: the model does not fit the images, an own local rule does not descend once,
                or delta is too large for the shards.
        """
        plan, training, privacy = self.plan, self.config.training, self.config.privacy
        built = self.build_model(0)
        model = torch.zeros(1, built.n_parameters)
        slots = plan.rules.server.start(model[0])
        if not is_known(plan.rules.local):
            GIVEN["local step"](plan.rules.local, model, training.learning_rate, slots)
        if built.is_own and (who := self.vectorised_by):
            GIVEN["module"](built.name, built.module, self.input_shape, who)
        # A device as a whole takes part for certain.
        rates = sampling_rates(sizes, training.batch_size if privacy.unit == "record" else None)
        schedule, chance = plan.schedule, plan.network.chance
        steps, of = schedule.rounds * schedule.local_steps, "steps"
        if chance is not None:  # of a round, that its device joins and some step draws the record
            rates = chance * (1 - (1 - rates) ** schedule.local_steps)
            steps, of = schedule.rounds, "rounds"
        check_delta(privacy.delta, sizes, rates, steps, of)

    @property
    def vectorised_by(self) -> str | None:
        """Who passes records through the model by torch.func.vmap, in words."""
        if self.plan.private:
            return "privacy, whose records each pass it alone,"
        backend, on_gpu = self.config.training.backend, self.config.device != "cpu"
        return "training.backend: stacked" if backend in ("stacked", *["auto"] * on_gpu) else None

    @property
    def repeats(self) -> list[str]:
        """Sentences on the records that are equal to others."""
        return self._split[1]

    @cached_property
    def _tree_and_names(self) -> tuple[Tree, Names]:
        """The tree as configured: that of an algorithm may have fewer layers."""
        topology = self.config.topology
        tree = build_tree(topology)
        above = tree.ancestors[tree.depth - 1].tolist()
        servers = tuple(tree.names[-2][server] for server in above)
        return tree, Names(tree.names[-1], servers, given=topology.edges is not None)

    @cached_property
    def samples(self) -> DeviceSamples:
        """The training records by device."""
        return shards_of(self.dealt)

    @property
    def trained_on(self) -> str:
        """A digest of the devices' training records, and of who holds which."""
        dataset, samples = self.dataset, self.samples
        held = dataset.images[samples.samples], dataset.labels[samples.samples]
        return digest_of("", (samples.sizes, samples.samples, *held)).hex()

    @cached_property
    def sampling_rates(self) -> np.ndarray:
        """float64 (N_L,), the chances q_j that a local step uses a record."""
        return sampling_rates(self.samples.sizes, self.config.training.batch_size)

    @property
    def held_out(self) -> np.ndarray:
        """(n,) int64, the records that the model is evaluated on."""
        split = self.config.training.evaluate_on
        if split == "test" and self.given_manifest is None:  # scoring rows deals none
            return np.arange(self.dataset.n_train, len(self.dataset.labels))
        return held_out(self.dealt, split)[0]

    @property
    def evaluated(self) -> np.ndarray:
        """`held_out`, which accuracy is a share of.

        Raises:
            InputError: there are none.
        """
        if not len(self.held_out):
            key, split = "training.evaluate_on", self.config.training.evaluate_on
            raise InputError(key, split, "needs records there; the split has none")
        return self.held_out

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The user's own metrics, by the names that the configuration gives, or the data set.

        Raises:
            InputError: one does not make a finite number of the held-out records.
        """
        names = self.config.training.metrics or self.dataset.metrics
        metrics: dict[str, Metric] = GIVEN["metrics"](names)
        if metrics:
            units = self.dataset.in_units
            metrics = {name: metric.read_in(units) for name, metric in metrics.items()}
            labels = self.dataset.labels[self.evaluated]
            GIVEN["metrics.trial"](metrics, labels, self.dataset.n_classes)
        return metrics

    def records(self, samples: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs (n, C, H, W) and labels (n,) of some samples on the compute device."""
        return records_of(self.inputs, samples, self.config.device)

    def shards(self) -> Shards:
        """The devices' records on the compute device."""
        samples = self.samples
        return Shards(*self.records(samples.samples), samples.sizes, self.sampling_rates)

    @cached_property
    def network(self) -> Network:
        """The plan's, with the weights that the shards give its nodes (`topology.weights`)."""
        network, weights = self.plan.network, self.config.topology.weights
        # Uniform weights ask for no record: rounds can be planned before any is loaded.
        return network if weights == "uniform" else weighted(network, self.samples.sizes, weights)


def records_of(inputs: Dataset, samples: np.ndarray, device: str) -> tuple[Tensor, Tensor]:
    """Inputs (n, C, H, W) and labels (n,) of some samples on a device."""
    return (
        torch.as_tensor(features(inputs.images[samples]), device=device),
        torch.as_tensor(inputs.labels[samples], device=device),
    )
