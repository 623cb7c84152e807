"""The one place of these tests that knows how the library computes a ledger and trains rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from m2fdp.algorithms import build_plan
from m2fdp.config import DatasetConfig, parse_config
from m2fdp.control import course
from m2fdp.data.dataset import Dataset
from m2fdp.data.sources import load_dataset
from m2fdp.experiments.checks import check_config, check_data
from m2fdp.pipelines.privacy.nodes import calibrate, plan_rounds, tabulate_ledger
from m2fdp.simulation import training


def ledger_lines(parameters: dict[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The ledger of a run on digits, as its table has it; each row with the run's own epsilons.

    Args:
        parameters: nested, as `kedro run` has them.
        sizes: D_j of every device.

    Raises:
        InputError: the configuration is refused.
    """
    config = parse_config(parameters)
    check_config(config)
    dataset = _digits()
    check_data(
        dataset.shape,
        dataset.n_classes,
        np.array(sizes),
        config.model,
        config.training,
        config.privacy,
    )
    plan = build_plan(config.algorithm, config.topology, config.training, config.seed)
    manifest = _manifest(sizes)
    run_plan = plan_rounds(
        plan,
        dataset,
        manifest,
        config.model,
        config.training,
        config.resources,
        config.privacy,
        config.control,
    )
    _, mechanism, rounds = calibrate(
        plan, run_plan, manifest, config.training, config.privacy, config.threat
    )
    of_the_run = {
        "rounds_planned": len(run_plan.rounds),
        "rounds": rounds,
        "epsilon_nominal": config.privacy.epsilon,
        "epsilon_verified": mechanism.epsilon(rounds),
        "epsilon_pooled": mechanism.ledger.pooled(rounds),
    }
    table = tabulate_ledger(mechanism, rounds, parameters)
    return [row | of_the_run for row in table.to_dict("records")]


@contextmanager
def cut_off_at(last: int) -> Iterator[None]:
    """Trainings within it end with an OSError once they have done so many rounds."""
    rounds, run_round = training.rounds, course.run_round

    def go_on(after: Any) -> Any:
        if after.round == last:
            raise OSError("cut off")
        return after

    with (
        mock.patch.object(training, "rounds", lambda *args: map(go_on, rounds(*args))),
        mock.patch.object(course, "run_round", lambda *args: go_on(run_round(*args))),
    ):
        yield


@cache
def _digits() -> Dataset:
    return load_dataset(DatasetConfig())


def _manifest(sizes: Sequence[int]) -> pd.DataFrame:
    """A split that deals so many records to each device; which ones is nothing to a ledger."""
    device = np.repeat(np.arange(len(sizes)), sizes)
    return pd.DataFrame({"split": "train", "device": device, "sample": np.arange(len(device))})
