"""A run that is audited and attacked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from m2fdp.adversaries.attacked import Attacked
from m2fdp.adversaries.audits import audit_run
from m2fdp.core.experiment.experiment import PlainExperiment


class Tested(PlainExperiment):
    """A run, and what tests its promise."""

    def audit(self) -> pd.DataFrame:
        """The promise, tested in the engine's own rounds by `audit.method`: a row an observer.

        By canaries, lower bounds on epsilon beside the ledger's upper bounds; see
        `m2fdp.adversaries.audit.Bounds`. By neighbours, how far one record moved what is released,
        and may; see `m2fdp.adversaries.neighbours.Tried`.

        Raises:
            InputError: nothing is private, or the method is not made for these rounds.
        """
        return audit_run(self)

    def attack(
        self,
        folder: Path | None = None,
        on_done: Callable[[int, int], None] = lambda done, total: None,
    ) -> Attacked:
        """What an observer takes from the messages that it reads; see `attacks.attack_run`.

        Raises:
            InputError: an attack that is not defined for the run.
        """
        from m2fdp.adversaries.attacks import attack_run  # SciPy's distributions take long

        return attack_run(self, folder, on_done)
