"""`Assembly`: the one place that knows how the parts of a run are put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan

import numpy as np

from m2fdp.control.assembly import controller_of
from m2fdp.control.controller import Controller
from m2fdp.control.policy import ControlledRounds, controlled_plan
from m2fdp.convergence.accumulated import accumulated_noise, shortened
from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.costs.clock import totals
from m2fdp.core.costs.resources import LinkClock, Links
from m2fdp.core.engine.arithmetic import set_exact_arithmetic
from m2fdp.core.engine.evaluation import evaluate
from m2fdp.core.engine.executor import ExecutionSettings
from m2fdp.core.engine.lengths import any_length
from m2fdp.core.engine.local_rules import keeping
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.rules import Rules
from m2fdp.core.engine.server_rules import adding
from m2fdp.core.engine.simulation import Simulation, SimulationProcess
from m2fdp.core.engine.training import FixedRounds, Measures, RoundPolicy, Run
from m2fdp.core.engine.tree_process import build_process
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.calibrating import calibrate
from m2fdp.core.experiment.parts import Parts
from m2fdp.core.experiment.randomness import randomness_of
from m2fdp.core.experiment.results import Calibration
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.calibrated import CalibratedMechanism
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.privacy.rounding import Rounding, rounding
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.streams import Randomness, digest_of
from m2fdp.processes.elsewhere import Sites
from m2fdp.processes.workers import available_cores
from m2fdp.secure_aggregation.survivors import SumRules
from m2fdp.tiers import tree_assembly as tree_tiers
from m2fdp.tiers.assembly import course_of, model_of
from m2fdp.tiers.building import build_process_of
from m2fdp.tiers.course import PlannedTiers, TierCourse
from m2fdp.tiers.tree_plan import TreeTiers, tree_course


@dataclass(frozen=True, eq=False, repr=False)
class Assembly(Parts):
    """All that follows from a run's parts, up to the run itself, each made when it is first asked
    for. What is done with it is `m2fdp.core.experiment.Experiment`.
    """

    @cached_property
    def model(self) -> Model:
        """The configured model with its first weights."""
        if self.splits is not None:
            return tree_tiers.split_in_use(self.config, self.classified, self.splits)
        return model_of(self.config, *self.classified, self.config.seed)

    @cached_property
    def rounding(self) -> Rounding:
        """What one record does to a model, beside which rounding has to be small."""
        return rounding(self.calibration.mechanism)

    @cached_property
    def begins_too_long(self) -> bool:
        """Whether rounding the first model comes near what one record does, in the shortest step;
        a controller's are not known yet."""
        steps = [] if self.config.control.enabled else [p.step_size for p in self.run_plan.rounds]
        length = float(self.model.initial_vector().norm())
        return not all(length <= self.rounding.longest(step) for step in {*steps})

    @property
    def longest(self) -> Callable[[float], float]:
        """The length that a model may have at a step of size eta, or training ends."""
        return any_length if self.begins_too_long else self.rounding.longest

    @property
    def rules(self) -> Rules:
        """The algorithm's, by which no model that is too long takes a step."""
        noised = get_mechanism(self.config.privacy.mechanism).noises_every_step
        return self.plan.rules.within(self.longest, noised)

    @cached_property
    def splits(self) -> TreeTiers | None:
        """Who has how much of the model when, where devices split it at every step."""
        if self.network.splits is None or get_algorithm(self.config.algorithm).tiers is not None:
            return None  # nobody splits it, or only in epochs
        devices = self.samples.sizes, self.sampling_rates
        return tree_tiers.plan_splits(self.config, self.run_plan, self.classified, *devices)

    @cached_property
    def course(self) -> TierCourse | None:
        """Who trains what in which round, and what that costs, where devices train in tiers."""
        return course_of(self.config, self.network, self.samples.sizes, *self.classified)

    @cached_property
    def controller(self) -> Controller | None:
        """What chooses the rounds, if anything does."""
        return controller_of(self, self.model) if self.config.control.enabled else None

    @cached_property
    def scheduled(self) -> RunPlan:
        """The rounds as scheduled, or as the controller will choose them: what noise is calibrated
        for, in units of their steps."""
        plan = self.plan
        if self.controller is None:
            return RunPlan((self.network,), plan.schedule.round_plans())
        return controlled_plan(self.controller, self.network, plan.schedule)

    @cached_property
    def calibration(self) -> Calibration:
        """See `m2fdp.core.experiment.calibrating.calibrate`."""
        devices = self.samples.sizes, self.sampling_rates
        return calibrate(self.config, self.plan, self.scheduled, *devices)

    @property
    def noised_with(self) -> str:
        """A digest of how much noise goes where, to float32: machines may calibrate it otherwise in
        the last digits of float64."""
        mechanisms = self.calibration.mechanisms
        drawn = (array for mechanism in mechanisms for array in mechanism.noise.every)
        return digest_of("", (array.astype(np.float32) for array in drawn)).hex()

    @cached_property
    def accumulated_noise(self) -> float | None:
        """What noise alone would make of a parameter in steps as scheduled; None where
        `training.accumulated_noise` does not ask, or nothing is noised."""
        rule = adding(self.plan.rules.server)
        if self.config.training.accumulated_noise is None or not self.plan.private or rule is None:
            return None
        mechanisms, rounds = self.calibration.mechanisms, self.calibration.affordable_rounds
        return accumulated_noise(self.scheduled, mechanisms, rule.carried(rounds))

    @cached_property
    def schedule(self) -> Schedule:
        """The plan's, its steps as short as `training.accumulated_noise` asks."""
        schedule, most = self.plan.schedule, self.config.training.accumulated_noise
        if most is None or self.accumulated_noise is None:
            return schedule
        return shortened(schedule, self.accumulated_noise, most)

    @cached_property
    def run_plan(self) -> RunPlan:
        """The rounds as they are trained."""
        if self.schedule == self.plan.schedule:
            return self.scheduled
        return replace(self.scheduled, rounds=self.schedule.round_plans())

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
            mechanisms or self.calibration.mechanisms,
            model or self.model,
            tree_tiers.with_sent_labels(
                config, self.run_plan, shards or self.shards(), n_classes, draws
            ),
            draws,
            self.rules,
            SumRules(stop=sums.on_loss == "stop", masks=sums.protocol == "masks"),
            tree_tiers.splits_of(config, self.splits),
        )

    def process(
        self, simulation: Simulation | None = None, sites: Sites | None = None
    ) -> SimulationProcess:
        """How the rounds are computed.

        Args:
            simulation: instead of `simulation()`, such as one with a part replaced.
            sites: who computes them, block by block; None = processes of this machine.

        Raises:
            InputError: there are sites, and rounds can't be cut into blocks.
        """
        set_exact_arithmetic()
        simulation, training = simulation or self.simulation(), self.config.training
        workers = available_cores(self.config.threads)
        way = get_algorithm(self.config.algorithm).tiers
        if way is not None and self.course is not None:
            return build_process_of(way, self.config, simulation, self.course.cuts, workers)
        settings = ExecutionSettings(training.backend, training.chunk_size, workers)
        return build_process(simulation, settings, sites)

    def run(self, process: SimulationProcess | None = None) -> Run:
        """The rounds, how they are decided, and what is measured meanwhile.

        Args:
            process: instead of `process()`, such as that of another simulation.

        Raises:
            InputError: the ledger counts on noise that the rounds do not draw.
        """
        process = process or self.process()
        self._refuse_undrawn(process)
        config, rounds, course = self.config, self.run_plan.rounds, self.course
        simulation, evaluated = process.simulation, self.records(self.held_out)
        model, mechanism = simulation.model, self.calibration.mechanism
        links = [
            Links(network, each.lock_step, model.n_parameters, config.resources)
            for network, each in zip(simulation.networks, simulation.mechanisms, strict=True)
        ]
        rule = keeping(simulation.rules.local)
        clock = LinkClock(links, reports=len(rule.reports) if rule is not None else 0)
        if self.splits is not None:
            course = tree_course(self.splits, clock, rounds, config.resources)
        costs = totals([clock.round(plan) for plan in rounds]) if course is None else course.totals
        policy: RoundPolicy = FixedRounds(rounds, told=self.accumulated_noise is not None)
        if self.controller is not None:
            policy = ControlledRounds(self.controller, rounds, simulation)
        elif course is not None:
            policy = PlannedTiers(rounds, course, config.training.plateau)
        measures = Measures(
            config.training.evaluate_every,
            lambda weights: evaluate(model, weights, *evaluated, process.executor.workers),
            lambda round_: (costs[round_ - 1].energy_j, costs[round_ - 1].delay_s),
            mechanism.epsilon if mechanism.private else lambda round_: nan,
            private=config.partition.held_out_by == "devices",
        )
        rounds_affordable = self.calibration.affordable_rounds
        return Run(process, policy, rounds_affordable, measures, self.longest)

    def _refuse_undrawn(self, process: SimulationProcess) -> None:
        mechanisms = process.simulation.mechanisms
        credited = frozenset[str]().union(*(each.noise.credited for each in mechanisms))
        if undrawn := sorted(credited - process.draws):
            raise InputError(
                "algorithm",
                self.config.algorithm,
                f"is trained by rounds that draw no noise of {', '.join(undrawn)}, which the "
                "ledger counts on; valid: a process whose `draws` names it",
            )
