"""A run's configuration is checked before Kedro's session, which imports MLflow, and not again."""

from __future__ import annotations

from collections.abc import Collection

import click
from kedro.pipeline import Pipeline

from m2fdp.adversaries.facts import check_attack, check_audit
from m2fdp.convergence.facts import check_bound
from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.experiment.checks import check_config

# Pipelines that read keys which nothing else does, with what each makes of them.
READING = {"bound": "bound", "clock": "clock_rounds"}
# What is refused of the makers of these, pipelines of the same names, and of no other run.
_REFUSING = {"audit": check_audit, "attack": check_attack, "bound": check_bound}
_CHECKED = f"{__name__}.checked"  # what a command keeps for its session


def check_early(config: Config, names: Collection[str] | None) -> None:
    """Check the configuration of the command that is run.

    Args:
        names: the pipelines that are asked for, none being the default one; None where it is their
            nodes, so that nobody knows yet what the run makes.

    Raises:
        InputError: see `check_config` and `check_made`.
    """
    plan = check_config(
        config, frozenset(READING).intersection(READING if names is None else names)
    )
    check_made(config, plan, names or ())
    click.get_current_context().meta[_CHECKED] = config, plan


def check_made(config: Config, plan: Plan, made: Collection[str]) -> None:
    """Refuse what audit, attack and bound can't be made of.

    Args:
        made: datasets, or pipelines by the names of what they make.

    Raises:
        InputError: naming the key.
    """
    for name, check in _REFUSING.items():
        if name in made:
            check(config, plan)


def checked_plan(config: Config) -> Plan:
    """The algorithm's plan of a session's configuration; it is checked here where no command has.

    Raises:
        InputError: see `check_config`.
    """
    command = click.get_current_context(silent=True)
    checked = None if command is None else command.meta.get(_CHECKED)
    if checked is not None and checked[0] == config:
        return checked[1]
    return check_config(config, frozenset(READING))  # which of them are to run is known later


def reading(pipeline: Pipeline) -> frozenset[str]:
    """Of a run, the pipelines that read keys which nothing else does."""
    outputs = pipeline.all_outputs()
    return frozenset(name for name, output in READING.items() if output in outputs)
