"""A run that is audited, by canaries or by neighbours, and attacked, in the engine's own rounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from m2fdp.adversaries.facts import check_audit
from m2fdp.adversaries.tried_runs import TriedRun
from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.engine.rules import TooLongError
from m2fdp.core.engine.training import DivergenceError
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.streams import seeded

if TYPE_CHECKING:
    from m2fdp.adversaries.attacks import Attacked


class Tested(PlainExperiment):
    """A run, and what tests its promise. SciPy's distributions, which both verbs need, take long to
    import."""

    def audit(self) -> pd.DataFrame:
        """The promise, tested in the engine's own rounds by `audit.method`: a row an observer.

        By canaries, lower bounds on epsilon beside the ledger's upper bounds; see
        `m2fdp.adversaries.audit.Bounds`. By neighbours, how far one record moved what is released,
        and may; see `m2fdp.adversaries.neighbours.Tried`.
        """
        from m2fdp.adversaries.audit import audit
        from m2fdp.adversaries.canaries import AuditedRun

        config, plan = self.config, self.plan
        check_audit(config, plan)
        if config.audit.method == "neighbours":
            return _by_neighbours(self)
        calibrated, sizes = self.calibration, self.samples.sizes
        set_exact_arithmetic()
        promise = config.privacy, sizes, plan.rules
        run = AuditedRun(self.network, calibrated.mechanism, self.schedule, *promise)
        rounds = calibrated.affordable_rounds
        found = audit(run, min(rounds, config.audit.rounds or rounds), config.audit, config.seed)
        return pd.DataFrame([vars(each) for each in found])

    def attack(
        self,
        folder: Path | None = None,
        on_done: Callable[[int, int], None] = lambda done, total: None,
    ) -> Attacked:
        """What an observer takes from the messages that it reads; see `attacks.attack_run`."""
        from m2fdp.adversaries.attacks import attack_run

        return attack_run(self, folder, on_done)


def tried_run(assembly: Assembly) -> TriedRun:
    """The run as it is tried on neighbours: with draws that repeat."""
    config, calibrated = assembly.config, assembly.calibration
    draws = seeded(config.seed, f"neighbours of {assembly.trained_on}".encode())
    rounds = calibrated.affordable_rounds
    return TriedRun(
        assembly.simulation(randomness=draws),
        calibrated.mechanism.ledger,
        config.privacy,
        assembly.run_plan.rounds[: min(rounds, config.audit.rounds or rounds)],
        rounds,
        assembly.process,
        assembly.ledger_behind,
    )


def _by_neighbours(assembly: Assembly) -> pd.DataFrame:
    from m2fdp.adversaries.neighbours import try_neighbours

    config = assembly.config
    set_exact_arithmetic()
    try:
        tried = try_neighbours(tried_run(assembly), config.audit.neighbours, config.seed)
    except DivergenceError as error:
        raise assembly.too_large(error) from None
    except TooLongError as error:
        raise assembly.too_long(error) from None
    return pd.DataFrame([vars(each) for each in tried])


def tried_condition(assembly: Assembly, tried: pd.DataFrame) -> str | None:
    """What neighbours say of a conditional run's condition; None where nothing is conditional."""
    if not assembly.conditions():
        return None
    broken = tried.loc[~tried["held"], "observer"]
    verdict = "did not hold for " + ", ".join(broken) if len(broken) else "held"
    return f"condition tried on {tried['neighbours'].max():,} neighbours: {verdict}"


def refuse_broken(tried: pd.DataFrame) -> None:
    """End with an `InputError` where a line of the ledger did not hold.

    Args:
        tried: a table of `Experiment.audit`; of canaries nothing is judged.
    """
    for row in tried.to_dict("records"):
        if not row.get("held", True):
            raise InputError(
                "audit.method",
                "neighbours",
                f"finds a line of the ledger that does not hold: {row['observer']}, devices "
                f"{row['position']}: {row['finding']}; a shift of {row['found']:.3g} deviations of "
                f"the noise, where {row['allowed']:.3g} is allowed: trust no epsilon of this run",
            )
