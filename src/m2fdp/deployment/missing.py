"""Runs that go on without missing nodes, and so without their noise."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.results import Calibration
from m2fdp.core.privacy.ledger import behind_own_heads
from m2fdp.experiment import Experiment

# Two machines may calibrate to numbers that differ by so much of them.
ROUNDING = 1e-6


class WithoutMissing(Experiment):
    """A run under `deployment.on_missing: skip`: nobody's line counts any noise but a head's own,
    whether a node has been missing or not.

    Raises:
        InputError: by its calibration, where that does not keep the run's epsilon.
    """

    @cached_property
    def calibration(self) -> Calibration:
        """See `m2fdp.core.experiment.assembly.Assembly`."""
        whole = super().calibration
        ledger, rounds = behind_own_heads(whole.mechanism.ledger), whole.affordable_rounds
        promised, without = whole.mechanism.epsilon(rounds), ledger.verified(rounds)
        if self.plan.private and without > promised * (1 + ROUNDING):
            problem = (
                f"does without missing nodes' noise, behind which epsilon is {promised:.4g} and "
                f"without which it is {without:.4g}; use wait or stop, or distrust servers and "
                "cloud"
            )
            raise InputError("deployment.on_missing", "skip", problem)
        mechanisms = tuple(replace(each, ledger=ledger) for each in whole.mechanisms)
        return replace(whole, mechanisms=mechanisms)


def experiment_of(config: Config) -> type[Experiment]:
    """What a configuration's run is, as nodes run it."""
    return WithoutMissing if config.deployment.on_missing == "skip" else Experiment
