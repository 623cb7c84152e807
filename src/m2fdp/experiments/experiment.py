"""`Experiment`: the one place that knows how the parts of a run are put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from m2fdp.algorithms import Plan
from m2fdp.config import Config
from m2fdp.control.controller import Controller
from m2fdp.control.policy import controlled_plan
from m2fdp.convergence.measurement import measure_run
from m2fdp.data.arrays import checked
from m2fdp.data.dataset import Dataset
from m2fdp.data.features.mapping import input_shape
from m2fdp.data.manifest import (
    DeviceSamples,
    check_manifest,
    held_by_cloud,
    make_manifest,
    shards_of,
)
from m2fdp.data.sources import load_dataset
from m2fdp.experiments import promise, tree_tiers
from m2fdp.experiments.audits import audit_run
from m2fdp.experiments.bounds import bound_run
from m2fdp.experiments.checks import check_config, check_data, check_equal_rounds
from m2fdp.experiments.control import controller_of
from m2fdp.experiments.inputs import compute_inputs, records_of
from m2fdp.experiments.proximal import check_no_proximal
from m2fdp.experiments.randomness import randomness_of
from m2fdp.experiments.results import Attacked, Calibration, ConvergenceBounds, Trained
from m2fdp.experiments.running import process_for, run_of
from m2fdp.experiments.steps import advised, in_words, too_large
from m2fdp.experiments.tiers import course_of, model_of
from m2fdp.models.registry import Model
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.summary import drowned
from m2fdp.schedule.rounds import RunPlan
from m2fdp.simulation.arithmetic import set_exact_arithmetic
from m2fdp.simulation.evaluation import Evaluation, confusion_matrix, evaluate
from m2fdp.simulation.minibatches import Shards
from m2fdp.simulation.sampling import sampling_rates
from m2fdp.simulation.simulation import Simulation, SimulationProcess
from m2fdp.simulation.survivors import SumRules
from m2fdp.simulation.training import (
    SILENT,
    Checkpointing,
    DivergenceError,
    Listener,
    Progress,
    Run,
    divergence,
    train,
)
from m2fdp.streams import Randomness
from m2fdp.tiering.course import TierCourse
from m2fdp.tiering.tree_plan import TreeTiers
from m2fdp.topology.builders import build_tree
from m2fdp.topology.network import Network, joined_by_chance, weighted


@dataclass(frozen=True, eq=False, repr=False)
class Experiment:
    """A configuration with all that follows from it, each part made when it is first asked for.

    Whatever computes numbers sets exact arithmetic first (`set_exact_arithmetic`: one thread an
    operator, no TF32), for the whole process: results depend on nothing around the experiment.

    Attributes:
        config: of the run.
        given_dataset: instead of the one that the configuration names.
        given_manifest: instead of one that is dealt as configured; columns as in
            `m2fdp.data.manifest.make_manifest`.
        given_plan: that `check_config` has returned for this configuration; it is not checked
            again.

    Raises:
        InputError: the configuration contradicts itself.
    """

    config: Config
    given_dataset: Dataset | None = None
    given_manifest: pd.DataFrame | None = None
    given_plan: Plan | None = None

    def __post_init__(self) -> None:
        _ = self.plan  # which checks the configuration
        if self.given_dataset is not None:
            _ = self.dataset  # which checks it

    @classmethod
    def from_config(
        cls, config: Config, dataset: Dataset | None = None, manifest: pd.DataFrame | None = None
    ) -> Experiment:
        """The experiment of a configuration, on its own data set and split or on given ones.

        Raises:
            InputError: the configuration contradicts itself, or the given data set is none.
        """
        return cls(config, dataset, manifest)

    def __repr__(self) -> str:
        return f"Experiment({in_words(self.config, self.plan)})"

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
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of `inputs`, known before they are computed."""
        return input_shape(self.config.features, self.dataset.shape)

    @property
    def _classified(self) -> tuple[tuple[int, int, int], int]:
        """What models are for: the shape of inputs, and the number of classes."""
        return self.input_shape, self.dataset.n_classes

    @cached_property
    def manifest(self) -> pd.DataFrame:
        """Who holds which record; the tree says only which devices share an edge server.

        Raises:
            InputError: records that can't be dealt as asked, a given manifest that is not one of
                this data set for these devices, or what model and privacy refuse of the data.
        """
        config, dataset, tree = self.config, self.dataset, build_tree(self.config.topology)
        manifest = self.given_manifest
        if manifest is None:
            edges = tree.ancestors[tree.depth - 1]
            manifest = make_manifest(dataset, config.partition, edges, config.seed)
        else:
            check_manifest(manifest, dataset, tree.n_devices)
        check_data(config, self.plan, dataset, self.input_shape, shards_of(manifest).sizes)
        return manifest

    def check(self) -> None:
        """Refuse what model, privacy and network have against the data, before more is computed.

        Raises:
            InputError: see `manifest`, which is made or checked here.
        """
        _ = self.manifest

    @cached_property
    def samples(self) -> DeviceSamples:
        """The training records by device."""
        return shards_of(self.manifest)

    @cached_property
    def sampling_rates(self) -> np.ndarray:
        """float64 (N_L,), the chances q_j that a local step uses a record."""
        return sampling_rates(self.samples.sizes, self.config.training.batch_size)

    @cached_property
    def plan(self) -> Plan:
        """The algorithm's: network, schedule, and whether it is private."""
        return check_config(self.config) if self.given_plan is None else self.given_plan

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

    @cached_property
    def model(self) -> Model:
        """The configured model with its first weights."""
        if self.splits is not None:
            return tree_tiers.split_in_use(self.config, self._classified, self.splits)
        return model_of(self.config, *self._classified, self.config.seed)

    @cached_property
    def splits(self) -> TreeTiers | None:
        """Who has how much of the model when, where devices split it at every step."""
        if not tree_tiers.splits_in_steps(self.config, self.network):
            return None
        devices = self.samples.sizes, self.sampling_rates
        return tree_tiers.plan_splits(self.config, self.run_plan, self._classified, *devices)

    @cached_property
    def course(self) -> TierCourse | None:
        """Who trains what in which round, and what that costs, where devices train in tiers."""
        return course_of(self.config, self.network, self.samples.sizes, *self._classified)

    @cached_property
    def controller(self) -> Controller | None:
        """What chooses the rounds, if anything does."""
        if not self.config.control.enabled:
            return None
        devices = self.samples.sizes, self.sampling_rates
        return controller_of(self.config, self.plan, self.model, self._classified, *devices)

    @cached_property
    def run_plan(self) -> RunPlan:
        """The rounds as scheduled, or as the controller will choose them."""
        plan = self.plan
        if self.controller is None:
            return RunPlan((self.network,), plan.schedule.round_plans())
        return controlled_plan(self.controller, self.network, plan.schedule)

    def calibrate(self) -> Calibration:
        """The mechanisms for these shards and rounds, and the rounds that the budget affords.

        Raises:
            InputError: the target can't be met for an observer that `threat` distrusts, or the
                budget is passed by the first round.
        """
        return self._calibration

    @cached_property
    def _calibration(self) -> Calibration:
        return promise.calibrate(
            self.config, self.plan, self.run_plan, self.samples.sizes, self.sampling_rates
        )

    def ledger(self) -> pd.DataFrame:
        """One row for each observer of each position of a data owner; see
        `m2fdp.privacy.ledger_tables.ledger_table`."""
        return promise.ledger(self.config, self.calibrate())

    def elections(self) -> pd.DataFrame:
        """A row for each device where zones elect super-nodes: when it and others served."""
        return promise.elections(self.network, self.calibrate())

    def zones_table(self) -> pd.DataFrame:
        """What every observer learns in H's zones, whoever is trusted, beside H's formula."""
        return promise.zones(self.config, self.network, self.calibrate())

    def epsilon_over_rounds(self) -> pd.DataFrame:
        """Epsilon of each kind of observer after some rounds, to plan a budget."""
        return promise.epsilon_over_rounds(self.calibrate())

    def summary(self) -> dict[str, Any]:
        """What the run promises, and what the promise rests on; for JSON."""
        return promise.summarise(self.config, self.calibrate(), self.manifest, self.elections())

    def warnings(self) -> list[str]:
        """A line for each thing that a user can change and should know before trusting epsilon."""
        calibrated = self.calibrate()
        lines = promise.warn(self.config, calibrated, self.manifest, self.run_plan)
        return lines + drowned(calibrated.mechanism, self.model.n_parameters)

    def simulation(
        self,
        *,
        mechanisms: tuple[CalibratedMechanism, ...] | None = None,
        model: Model | None = None,
        shards: Shards | None = None,
        randomness: Randomness | None = None,
    ) -> Simulation:
        """All that determines the run's results, of the configured parts or of given ones.

        Args:
            mechanisms: instead of the calibrated ones, one for each network of the run plan.
            shards: instead of the data set's records on the compute device.
            randomness: instead of the configured draws, whose noise is keyed by all that a
                release depends on; noise must not be that of another simulation.
        """
        config, n_classes = self.config, self.dataset.n_classes
        sums = config.secure_aggregation
        records = self.inputs, self.samples, self.held_out
        draws = randomness or randomness_of(config, self.network, *records)
        return Simulation(
            self.run_plan.networks,
            mechanisms or self.calibrate().mechanisms,
            model or self.model,
            tree_tiers.with_sent_labels(
                config, self.run_plan, shards or self.shards(), n_classes, draws
            ),
            draws,
            self.plan.rules,
            SumRules(stop=sums.on_loss == "stop", masks=sums.protocol == "masks"),
            tree_tiers.splits_of(config, self.splits),
        )

    def shards(self) -> Shards:
        """The devices' records on the compute device."""
        samples = self.samples
        return Shards(
            *self.records(samples.samples), sizes=samples.sizes, rates=self.sampling_rates
        )

    def process(self, simulation: Simulation | None = None) -> SimulationProcess:
        """How the rounds are computed.

        Args:
            simulation: instead of `simulation()`, such as one with a part replaced.
        """
        set_exact_arithmetic()
        return process_for(self.config, simulation or self.simulation(), self.course)

    def train(
        self,
        listener: Listener = SILENT,
        start: Progress | None = None,
        checkpointing: Checkpointing | None = None,
        process: SimulationProcess | None = None,
    ) -> Trained:
        """Train the rounds that the budget affords.

        Args:
            listener: what to call while training goes on.
            start: what the run has reached before.
            checkpointing: how to keep what it reaches.
            process: instead of `process()`, such as that of another simulation.

        Raises:
            InputError: the model has diverged.
        """
        set_exact_arithmetic()
        process = process or self.process()
        try:
            state, metrics = train(self.run(process), listener, start, checkpointing)
        except DivergenceError as error:
            raise too_large(self.config, error) from None
        finally:
            process.executor.workers.end()
        model = process.simulation.model
        wrong = divergence(model, float(metrics["loss"].iloc[-1]), self.dataset.n_classes)
        line = advised(self.config, wrong)
        named = model.unflatten(state.weights.cpu())
        return Trained({name: value.clone() for name, value in named.items()}, metrics, line)

    def run(self, process: SimulationProcess | None = None) -> Run:
        """The rounds, how they are decided, and what is measured meanwhile.

        Args:
            process: instead of `process()`, such as that of another simulation.
        """
        return run_of(
            self.config,
            process or self.process(),
            self.run_plan,
            self.calibrate().affordable_rounds,
            self.records(self.held_out),
            self.controller,
            self.course,
            self.splits,
        )

    @property
    def held_out(self) -> np.ndarray:
        """(n,) int64, the records that the cloud evaluates on."""
        return held_by_cloud(self.manifest, self.config.training.evaluate_on)

    def records(self, samples: np.ndarray) -> tuple[Tensor, Tensor]:
        """Features (n, C, H, W) and labels (n,) of some samples on the compute device."""
        return records_of(self.inputs, samples, self.config.device)

    def evaluate(self, state_dict: Mapping[str, Tensor]) -> Evaluation:
        """What a model, such as `Trained.state_dict`, is worth on `held_out`, on the CPU."""
        set_exact_arithmetic()
        weights = parameters_to_vector(state_dict.values())
        return evaluate(self.model, weights, *records_of(self.inputs, self.held_out, "cpu"))

    def confusion_matrix(self, state_dict: Mapping[str, Tensor]) -> pd.DataFrame:
        """How many of `held_out` are of each true label (rows) and predicted one (columns)."""
        labels = self.dataset.labels[self.held_out]
        predicted = self.evaluate(state_dict).predictions.numpy()
        return confusion_matrix(labels, predicted, self.dataset.n_classes)

    def audit(self) -> pd.DataFrame:
        """Lower bounds on epsilon by canaries in the engine's own rounds, beside the ledger's
        upper bounds: a row an audited observer; see `m2fdp.adversaries.Bounds`.

        Raises:
            InputError: nothing is private, or the rounds are a controller's.
        """
        check_equal_rounds(self.config, self.plan)
        plan = replace(self.plan, network=self.network)
        return audit_run(self.config, plan, self.calibrate(), self.samples.sizes)

    def attack(
        self,
        folder: Path | None = None,
        on_done: Callable[[int, int], None] = lambda done, total: None,
    ) -> Attacked:
        """What an observer takes from the messages that it reads; see `attacks.attack_run`.

        Raises:
            InputError: an attack that is not defined for the run.
        """
        from m2fdp.experiments.attacks import attack_run  # SciPy's distributions take long

        return attack_run(self, folder, on_done)

    def measure(self) -> pd.DataFrame:
        """Train, and measure loss, gradients and curvature along the run; see
        `m2fdp.convergence.measurement.measure_run`.

        Raises:
            InputError: the rounds are a controller's.
        """
        check_equal_rounds(self.config, self.plan)
        rounds = self.run_plan.rounds[: self.calibrate().affordable_rounds]
        return measure_run(self.process(), rounds, self.config.training.evaluate_every)

    def bound(self, measured: pd.DataFrame | None = None) -> ConvergenceBounds:
        """The convergence bounds beside what is measured.

        Args:
            measured: of `measure`, which is called where it is not given.

        Raises:
            InputError: the rounds are a controller's, steps have a proximal term, or beta can't
                be estimated.
        """
        check_equal_rounds(self.config, self.plan)
        check_no_proximal(self.config)
        return bound_run(
            self.measure() if measured is None else measured,
            replace(self.plan, network=self.network),
            self.calibrate().mechanism,
            self.config.privacy,
            self.model.n_parameters,
            float(self.sampling_rates.max()),
        )
