"""`Assembly`: the one place that knows how the parts of a run are put together."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, nan
from typing import Any

import numpy as np

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config, ThreatConfig, released
from m2fdp.core.engine.execution import ExecutionSettings, available_cores, set_exact_arithmetic
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.process import Process, Simulation
from m2fdp.core.engine.rules import Rules, TooLongError, adds_up, any_length
from m2fdp.core.engine.training import (
    DivergenceError,
    FixedRounds,
    Measures,
    RoundPolicy,
    Run,
    evaluate,
)
from m2fdp.core.engine.tree_process import build_process
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.parts import Parts
from m2fdp.core.experiment.results import Calibration
from m2fdp.core.formatting import counted
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.calibration import (
    CalibratedMechanism,
    build_mechanisms,
    moved_by_joining,
    no_privacy,
)
from m2fdp.core.privacy.ledger import Ledger, behind_own_heads, build_ledger
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.rounding import Rounding, condition, rounding
from m2fdp.core.privacy.sight import observers
from m2fdp.core.privacy.summary import conditions_of
from m2fdp.core.rooms import brought
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.streams import KeyedStreams, Randomness, digest_of, seeded
from m2fdp.core.topology.network import Network

# Joules and seconds after each of t = 1…T rounds, and how the rounds are decided.
Paced = tuple[Sequence[tuple[float, float]], RoundPolicy]


@dataclass(frozen=True, eq=False, repr=False)
class Assembly(Parts):
    """All that follows from a run's parts, up to the run itself, each made when first asked for.

    A room that changes a part of the run has a subclass, whose property or method asks `super()`
    for the plain one. `m2fdp.experiment` puts the rooms' subclasses together.
    """

    # --- the model, and the rounds ---------------------------------------------------------------

    @cached_property
    def model(self) -> Model:
        """The configured model with its first weights."""
        return self.build_model(self.config.seed)

    @cached_property
    def scheduled(self) -> RunPlan:
        """The rounds as scheduled: what noise is calibrated for, in units of their steps."""
        return RunPlan((self.network,), self.plan.schedule.round_plans())

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule that is trained, which may have other steps than the plan's."""
        return self.plan.schedule

    @cached_property
    def run_plan(self) -> RunPlan:
        """The rounds as they are trained."""
        if self.schedule == self.plan.schedule:
            return self.scheduled
        return replace(self.scheduled, rounds=self.schedule.round_plans())

    # --- privacy ---------------------------------------------------------------------------------

    @cached_property
    def calibration(self) -> Calibration:
        """The mechanisms for these shards and rounds, and the rounds that the budget affords.

        Raises:
            InputError: the target can't be met for an observer that `threat` or the algorithm
                distrusts, or the budget is passed by the first round.
        """
        (first, *_), budget = self.mechanisms, self.config.privacy.budget
        rounds = first.affordable_rounds(budget)
        if rounds == 0:
            problem = f"is passed by the first round already, which costs {first.epsilon(1):.3g}"
            raise InputError("privacy.budget", budget, problem)
        of_run = self.config, self.plan
        own_parts = (part for of_room in brought("own_parts") for part in of_room(*of_run))
        return Calibration(self.mechanisms, rounds, tuple(own_parts))

    @cached_property
    def mechanisms(self) -> tuple[CalibratedMechanism, ...]:
        """The mechanism of each network, with the ledger of all scheduled rounds."""
        config, plan, run_plan = self.config, self.plan, self.scheduled
        if plan.private:
            premises = [self._premises(network) for network in run_plan.networks]
            return build_mechanisms(premises, self._as_drawn)
        of_run = run_plan.networks[0], run_plan.rounds, config.privacy, threat_of(config, plan)
        mechanism = no_privacy(*of_run)
        return (replace(mechanism, ledger=self._as_known(mechanism.ledger)),)

    def _premises(self, network: Network) -> Premises:
        config, devices = self.config, (self.samples.sizes, self.sampling_rates)
        threat = threat_of(config, self.plan)
        return Premises(network, *devices, self.scheduled.rounds, config.privacy, threat)

    def ledger_behind(self, noise: Sequence[np.ndarray]) -> Ledger:
        """The ledger of a run of one network, were its noise of other deviations, by layer."""
        (network, *_), privacy = self.scheduled.networks, self.config.privacy
        premises = self._premises(network)
        units = get_mechanism(privacy.mechanism).units(premises) * moved_by_joining(network)
        return self._as_drawn(build_ledger(premises, noise, units))

    def _as_drawn(self, ledger: Ledger) -> Ledger:
        """The ledger with all that is known before training; a local rule may weaken others'
        noise."""
        ledger = self._as_known(ledger)
        return ledger if adds_up(self.plan.rules.local) else behind_own_heads(ledger)

    def _as_known(self, ledger: Ledger) -> Ledger:
        for of_room in brought("ledgers"):
            ledger = of_room(self.config, self.scheduled, ledger)
        return ledger

    @property
    def noised_with(self) -> str:
        """A digest of how much noise goes where, to float32: machines may calibrate it otherwise in
        the last digits of float64."""
        mechanisms = self.calibration.mechanisms
        drawn = (array for mechanism in mechanisms for array in mechanism.noise.every)
        return digest_of("", (array.astype(np.float32) for array in drawn)).hex()

    @cached_property
    def rounding(self) -> Rounding:
        """What one record does to a model, beside which rounding has to be small."""
        return rounding(self.calibration.mechanism)

    @cached_property
    def begins_too_long(self) -> bool:
        """Whether rounding the first model comes near what one record does in any known step."""
        length = float(self.model.initial_vector().norm())
        return not all(length <= self.rounding.longest(step) for step in self.step_sizes)

    @property
    def step_sizes(self) -> set[float]:
        """The step sizes that are known before training."""
        return {plan.step_size for plan in self.run_plan.rounds}

    @property
    def longest(self) -> Callable[[float], float]:
        """The length that a model may have at a step of size eta, or training ends."""
        return any_length if self.begins_too_long else self.rounding.longest

    @property
    def rules(self) -> Rules:
        """The algorithm's, by which no model that is too long takes a step."""
        noised = get_mechanism(self.config.privacy.mechanism).noises_every_step
        return self.plan.rules.within(self.longest, noised)

    def conditions(self) -> list[str]:
        """What epsilon rests on and nothing enforces, each as a sentence."""
        config = self.config
        lines = [*conditions_of(config), *self.known]
        lines += [part.assumption for part in self.calibration.own_parts if not part.enforced]
        lines += [self.dataset.doubt] * bool(self.dataset.doubt)
        if not (config.dataset.confirmed or self.dataset.scaled_by_constants):
            name = config.dataset.name
            lines.append(
                f"a fixed range, and not what the records hold, has scaled the floats of "
                f"dataset.name={name} (dataset.confirmed=true says so)"
            )
        if self.begins_too_long:
            shortest = min(self.step_sizes)
            length = float(self.model.initial_vector().norm())
            moved = self.rounding.moved(shortest)
            lines.append(condition(self.rounding.rounded(length, shortest), moved))
        return list(dict.fromkeys(lines))

    # --- the run ---------------------------------------------------------------------------------

    def simulation(
        self,
        *,
        mechanisms: tuple[CalibratedMechanism, ...] | None = None,
        model: Model | None = None,
        shards: Shards | None = None,
        randomness: Randomness | None = None,
    ) -> Simulation:
        """All that determines the run's results, of the configured parts or of given ones: there is
        a mechanism for each network of the run plan."""
        return self.simulated(
            Simulation(
                self.run_plan.networks,
                mechanisms or self.calibration.mechanisms,
                model or self.model,
                shards or self.shards(),
                randomness or self.randomness_of(self.held_out),
                self.rules,
            )
        )

    def randomness_of(self, held_out: np.ndarray) -> Randomness:
        """A run's draws. Noise is keyed by all that a release depends on, down to the records.

        Files may change under one configuration: were the noise of the run before used again, the
        difference of the two models would be that of the records, in clear. If devices hold records
        out, the configuration keys minibatches too. The runs of a counted search have one seed, and
        compose as counted only if they share no chance of being drawn. Of the held-out records,
        int64 (n,), step sizes follow that wait for a better accuracy, and a score is a release.
        """
        config, network, shards, inputs = self.config, self.network, self.samples, self.inputs
        by_devices = config.partition.held_out_by == "devices"
        counts = config.training.plateau.factor < 1 or by_devices
        followed = held_out if counts else held_out[:0]
        arrays = (
            *network.tree.parents,
            *network.trust,
            shards.sizes,
            inputs.labels[shards.samples],
            inputs.images[shards.samples],
            *((inputs.labels[followed], inputs.images[followed]) if len(followed) else ()),
        )
        text = json.dumps(released(config), sort_keys=True)
        draws = seeded(config.seed, digest_of(text, arrays))
        if by_devices:
            return replace(draws, sampling=KeyedStreams(config.seed, digest_of(text, ())))
        return draws

    def simulated(self, simulation: Simulation) -> Simulation:
        """The simulation with what rooms change in it."""
        return simulation

    def process(self, simulation: Simulation | None = None, sites: Any = None) -> Process:
        """How the rounds are computed, by processes of this machine or, block by block, by sites.

        Raises:
            InputError: there are sites, and rounds can't be cut into blocks.
        """
        set_exact_arithmetic()
        training, workers = self.config.training, available_cores(self.config.threads)
        settings = ExecutionSettings(training.backend, workers=workers)
        return build_process(simulation or self.simulation(), settings, sites)

    def run(self, process: Process | None = None) -> Run:
        """The rounds, how they are decided, and what is measured meanwhile.

        Raises:
            InputError: the ledger counts on noise that the rounds do not draw.
        """
        process = process or self.process()
        self._refuse_undrawn(process)
        config, mechanism = self.config, self.calibration.mechanism
        simulation, evaluated = process.simulation, self.records(self.held_out)
        model, (costs, policy) = simulation.model, self.paced(simulation)
        measures = Measures(
            config.training.evaluate_every,
            lambda weights: evaluate(
                model, weights, *evaluated, process.executor.workers, self.metrics
            ),
            lambda round_: costs[round_ - 1],
            mechanism.epsilon if mechanism.private else lambda round_: nan,
            private=config.partition.held_out_by == "devices",
            own={name: metric.name for name, metric in self.metrics.items()},
        )
        return Run(process, policy, self.calibration.affordable_rounds, measures, self.longest)

    def paced(self, simulation: Simulation) -> Paced:
        """How the rounds are decided; what they cost a room counts."""
        rounds = self.run_plan.rounds
        return [(nan, nan)] * len(rounds), FixedRounds(rounds)

    def _refuse_undrawn(self, process: Process) -> None:
        mechanisms = process.simulation.mechanisms
        credited = frozenset[str]().union(*(each.noise.credited for each in mechanisms))
        if undrawn := sorted(credited - process.draws):
            raise InputError(
                "algorithm",
                self.config.algorithm,
                f"is trained by rounds that draw no noise of {', '.join(undrawn)}, which the "
                "ledger counts on; valid: a process whose `draws` names it",
            )

    # --- in words --------------------------------------------------------------------------------

    @property
    def smaller_steps(self) -> tuple[str, str]:
        """What a user changes to take smaller steps, and how."""
        return "training.learning_rate", "smaller"

    def too_large(self, error: DivergenceError | TooLongError) -> InputError:
        """The line for a run whose model is no longer made of numbers."""
        key, value = "training.learning_rate", self.config.training.learning_rate
        return InputError(key, value, f"{error}; choose a smaller one")

    def too_long(self, error: TooLongError) -> InputError:
        """The line for a run whose model has outgrown what a record does to it, or its numbers.
        Noise is in steps, as what a record does: longer steps alone do not help against it."""
        if not isfinite(error.length):
            return self.too_large(error)
        privacy, server = self.config.privacy, self.config.training.server
        if server.rule == "yogi":
            key = "training.server.learning_rate"
            return InputError(key, server.learning_rate, f"{error}; choose a smaller one")
        key, value, change = "privacy.epsilon", privacy.epsilon, "larger"
        if privacy.noise_multiplier is not None:
            key, value, change = "privacy.noise_multiplier", privacy.noise_multiplier, "smaller"
        remedy = "or, where noise is not what makes the model long, a larger training.learning_rate"
        return InputError(key, value, f"{error}; choose a {change} one, {remedy}")

    @property
    def round_in_words(self) -> str:
        """What happens in a round."""
        return counted(self.config.training.local_steps, "step")


def threat_of(config: Config, plan: Plan) -> ThreatConfig:
    """The configured threat, and whom the algorithm distrusts whatever it says."""
    others = plan.distrusts - observers().keys()
    if others:
        raise InputError(
            "algorithm",
            config.algorithm,
            f"distrusts {min(others)}, who is no kind of observer; valid: {', '.join(observers())}",
        )
    added = sorted(plan.distrusts - set(config.threat.distrusted))
    distrusted = [*config.threat.distrusted, *added]
    return config.threat.model_copy(update={"distrusted": distrusted})
