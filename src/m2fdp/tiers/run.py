"""A run whose devices split their model: in epochs of their own on a star, or step by step on a
tree."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from m2fdp.core.engine.execution import available_cores, set_exact_arithmetic
from m2fdp.core.engine.minibatches import draw_participants
from m2fdp.core.engine.process import Process, Simulation
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Paced
from m2fdp.core.formatting import counted
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import get_mechanism, lock_step_of
from m2fdp.core.streams import seeded
from m2fdp.core.topology.builders import build_tree
from m2fdp.costs.resources import totals
from m2fdp.costs.run import Billed
from m2fdp.nets import SPLIT_MODELS
from m2fdp.nets.resnet import last_pixels
from m2fdp.tiers.clock import costs_of_cuts, counted_costs
from m2fdp.tiers.course import (
    PlannedTiers,
    TierCourse,
    TreeTiers,
    billed_cuts,
    clock_costs,
    plan_course,
    plan_tree_tiers,
    tree_course,
)
from m2fdp.tiers.process import LocalTraining, TierProcess
from m2fdp.tiers.split_models import build_split_model
from m2fdp.tiers.split_noise import exposed_splits, randomised_response
from m2fdp.tiers.split_steps import Splits
from m2fdp.tiers.transfer import TransferProcess, build_transfer_model
from m2fdp.tiers.ways import Way, way_of


class Tiered(Billed):
    """A run whose devices may split their model (`tiering`)."""

    @property
    def way(self) -> Way | None:
        return way_of(self.config)

    def build_model(self, seed: int) -> Model:
        """Of a way: split, with the heads of its tiers."""
        way, config, classified = self.way, self.config, self.classified
        if way is None:
            return super().build_model(seed)
        if not way.averaged:
            n_clients = build_tree(config.topology).n_devices
            return build_transfer_model(config.model, *classified, seed, n_clients)
        cuts = SPLIT_MODELS[config.model.name]
        tiers = range(cuts - config.tiering.tiers + 1, cuts + 1) if way.tiered else ()
        return build_split_model(config.model, *classified, seed, tiers)

    @cached_property
    def model(self) -> Model:
        """Split, with the heads of the tiers that are ever in use, where devices split it at every
        step."""
        if self.splits is None:
            return super().model
        used = np.unique(self.splits.tiers).tolist()
        return build_split_model(self.config.model, *self.classified, self.config.seed, used)

    @cached_property
    def splits(self) -> TreeTiers | None:
        """Who has how much of the model when, where devices split it at every step."""
        if self.network.splits is None or self.way is not None:
            return None  # nobody splits it, or only in epochs
        config, (network, *_), rounds = self.config, self.run_plan.networks, self.run_plan.rounds
        costs = clock_costs(config.clock, counted_costs(config.model, *self.classified))
        cuts = np.append(billed_cuts(costs, SPLIT_MODELS[config.model.name]), len(costs.flops))
        return plan_tree_tiers(
            config.tiering,
            config.clock,
            costs_of_cuts(costs, cuts),
            network,
            lock_step_of(get_mechanism(config.privacy.mechanism), network, rounds),
            self.samples.sizes * self.sampling_rates,
            rounds,
            config.seed,
        )

    @cached_property
    def course(self) -> TierCourse | None:
        """Who trains what in which round, and what that costs, where devices train in epochs."""
        if self.way is None:
            return None
        config, streams = self.config, seeded(self.config.seed, b"").sampling
        rounds = range(1, config.training.rounds + 1)
        present = np.stack([draw_participants(self.network, streams, round_) for round_ in rounds])
        costs = counted_costs(config.model, *self.classified)
        return plan_course(config, self.way, costs, self.samples.sizes, present)

    def check_split(self, sizes: np.ndarray) -> None:
        """Also refuse batches of one record where batch norm needs two numbers."""
        super().check_split(sizes)
        model, batch_size = self.config.model, self.config.training.batch_size
        if self.way is None or model.name != "resnet" or model.norm != "batch":
            return
        batch = batch_size or int(sizes.max())
        lone_record = batch == 1 or ((sizes % batch == 1) | (sizes == 1)).any()
        if lone_record and last_pixels(model, self.input_shape) == 1:
            text = (
                "leaves batches of one record, whose last maps are one number each, and batch norm "
                "needs two; use another, or model.norm: group"
            )
            raise InputError("training.batch_size", batch_size, text)

    def simulated(self, simulation: Simulation) -> Simulation:
        """Splits, and labels as they are sent: of devices whose activations go to a server that
        nobody trusts, if asked, drawn once a record by randomised response."""
        simulation, privacy = super().simulated(simulation), self.config.privacy
        if self.splits is not None:
            simulation = simulation.having(Splits(self.splits.tiers, privacy.client_share))
        exposed, shards = exposed_splits(self.run_plan.networks[0]), simulation.shards
        if privacy.labels == "public" or not exposed.any():
            return simulation
        stream, truth = simulation.randomness.noise.generator("label-noise"), shards.labels
        n_classes = self.dataset.n_classes
        drawn = randomised_response(truth.cpu().numpy(), n_classes, privacy.label_epsilon, stream)
        theirs = torch.as_tensor(np.repeat(exposed, shards.sizes), device=shards.labels.device)
        labels = torch.as_tensor(drawn, device=shards.labels.device)
        sent = torch.where(theirs, labels, shards.labels)
        return replace(simulation, shards=replace(shards, labels=sent))

    def process(self, simulation: Simulation | None = None, sites: Any = None) -> Process:
        if self.way is None or self.course is None:
            return super().process(simulation, sites)
        set_exact_arithmetic()
        config, simulation = self.config, simulation or self.simulation()
        training, leakage = config.training, config.leakage
        settings = LocalTraining(
            training.local_epochs,
            int(training.batch_size or simulation.shards.sizes.max()),
            correlation=leakage.distance_correlation,
            shuffling=leakage.patch_shuffling,
            two_party=training.backend == "reference",
        )
        kind = TierProcess if self.way.averaged else TransferProcess
        return kind(simulation, self.course.cuts, settings, available_cores(config.threads))

    def paced(self, simulation: Simulation) -> Paced:
        course, rounds = self.course, self.run_plan.rounds
        if self.splits is not None:
            links = self.links(simulation)
            course = tree_course(self.splits, links, rounds, self.config.resources)
        if course is None:
            return super().paced(simulation)
        return totals(course.costs), PlannedTiers(rounds, course, self.config.training.plateau)

    @property
    def round_in_words(self) -> str:
        if self.way is None:
            return super().round_in_words
        return counted(self.config.training.local_epochs, "epoch")
