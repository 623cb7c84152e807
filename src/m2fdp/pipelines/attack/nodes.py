"""Nodes of the attack pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from m2fdp.experiments import Experiment
from m2fdp.experiments.progress import items_bar
from m2fdp.reporting.attack_tables import print_attack


def attack_run(experiment: Experiment, attack_results: Path) -> Mapping[str, Any]:
    """What the configured observer takes; starts and shadows that are done are kept meanwhile."""
    what = "shadows" if experiment.config.attack.method == "lira" else "starts"
    with items_bar(what) as on_done:
        attacked = experiment.attack(attack_results, on_done)
    print_attack(attacked.record, Console(highlight=False))
    return attacked.record
