"""`Parts`: what a run is put together from, whatever its rounds: records, split and network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from torch import Tensor

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.data.arrays import checked
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.manifest import (
    DeviceSamples,
    by_name,
    check_manifest,
    held_out,
    make_manifest,
    shards_of,
)
from m2fdp.core.data.partitioners import Names
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.sampling import sampling_rates
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.experiment.data_checks import check_data
from m2fdp.core.experiment.inputs import compute_inputs, records_of
from m2fdp.core.metrics import Metric, own_metrics, try_out
from m2fdp.core.models.checks import Shape
from m2fdp.core.streams import digest_of
from m2fdp.core.topology.builders import build_tree
from m2fdp.core.topology.network import Network, joined_by_chance, weighted
from m2fdp.core.topology.tree import Tree
from m2fdp.features.mapping import input_shape
from m2fdp.features.overlap import Repeats, count_repeats


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """A configuration with its records, its split and its network, each made when it is first asked
    for.

    Attributes:
        config: configuration of the run.
        given_dataset: instead of the one that the configuration names.
        given_manifest: instead of one that is dealt as configured; columns as in
            `m2fdp.core.data.manifest.make_manifest`.
        given_plan: that `check_config` has returned for this configuration; it is not checked
            again.
        known: what earlier commands have found that epsilon rests on, beside what follows from
            all this.

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
        """The records.

        Raises:
            InputError: files that are missing or damaged, or given arrays that are no images.
        """
        if self.given_dataset is not None:
            return checked(self.given_dataset)
        return load_dataset(self.config.dataset)

    @cached_property
    def inputs(self) -> Dataset:
        """The records as models take them: as they are, or as features, which are computed now if
        no run has before.

        Raises:
            InputError: a feature map that can't be had for these images.
        """
        return self.compute_features(lambda done, total: None)

    def compute_features(self, on_chunk: Callable[[int, int], None]) -> Dataset:
        """`inputs`, telling while they are computed how many records are done, of how many."""
        return compute_inputs(self.config, self.dataset, on_chunk)

    @property
    def input_shape(self) -> Shape:
        """(C, H, W) of `inputs`, known before they are computed."""
        return input_shape(self.config.features, self.dataset.shape)

    @property
    def classified(self) -> tuple[Shape, int]:
        """What models are for: the shape of inputs, and the number of classes."""
        return self.input_shape, self.dataset.n_classes

    @property
    def manifest(self) -> pd.DataFrame:
        """Who holds which record, by the devices' names where `topology.edges` has any.

        Raises:
            InputError: see `dealt` and `metrics`.
        """
        _ = self.metrics  # refused before anything is written
        return by_name(self.dealt, self._tree_and_names[1])

    @property
    def dealt(self) -> pd.DataFrame:
        """Who holds which record, by the devices' numbers; the tree says only which devices share
        an edge server.

        Raises:
            InputError: records can't be dealt as asked, or a given manifest is none of this data
                set for these devices. All test records are trained on, or `check_data` refuses.
        """
        return self._split[0]

    @cached_property
    def _split(self) -> tuple[pd.DataFrame, Repeats]:
        config, dataset, (tree, names) = self.config, self.dataset, self._tree_and_names
        partition, manifest = config.partition, self.given_manifest
        if manifest is None:
            edges = tree.ancestors[tree.depth - 1]
            manifest = make_manifest(dataset, partition, edges, config.seed, names)
        else:
            by = partition.held_out_by
            manifest = check_manifest(manifest, dataset, tree.n_devices, by, names)
        check_data(config, self.plan, dataset, self.input_shape, shards_of(manifest).sizes)
        return manifest, count_repeats(dataset, manifest)

    @property
    def repeats(self) -> Repeats:
        """The records that are equal to others."""
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
        if split == "test" and self.given_manifest is None:  # whoever scores rows deals none
            return np.arange(self.dataset.n_train, len(self.dataset.labels))
        return held_out(self.dealt, split)[0]

    @property
    def evaluated(self) -> np.ndarray:
        """`held_out`, which accuracy is a share of.

        Raises:
            InputError: there are none.
        """
        if not len(self.held_out):
            split = self.config.training.evaluate_on
            raise InputError(
                "training.evaluate_on", split, "needs records there; the split has none"
            )
        return self.held_out

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The user's own metrics, by the names that the configuration gives.

        Raises:
            InputError: one does not make a finite number of the held-out records.
        """
        metrics = own_metrics(self.config.training.metrics)
        if metrics:
            try_out(metrics, self.dataset.labels[self.evaluated], self.dataset.n_classes)
        return metrics

    def records(self, samples: np.ndarray) -> tuple[Tensor, Tensor]:
        """Features (n, C, H, W) and labels (n,) of some samples on the compute device."""
        return records_of(self.inputs, samples, self.config.device)

    def shards(self) -> Shards:
        """The devices' records on the compute device."""
        samples = self.samples
        return Shards(
            *self.records(samples.samples), sizes=samples.sizes, rates=self.sampling_rates
        )

    @cached_property
    def network(self) -> Network:
        """The plan's, with the weights that the shards give its nodes (`topology.weights`)."""
        network, weights = self.plan.network, self.config.topology.weights
        training = self.config.training
        # Uniform weights ask for no record: rounds can be planned before any is loaded.
        if weights == "uniform" and training.example_cap is None:
            return network
        sizes = self.samples.sizes
        return joined_by_chance(weighted(network, sizes, weights), training, sizes)
