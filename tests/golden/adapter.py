"""The one place of these tests that knows how the library computes a ledger and trains rounds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from m2fdp.adversaries.views import Vantage, place_of
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.tree_process import TreeProcess
from m2fdp.core.privacy.sight import rows
from m2fdp.experiment import Experiment
from m2fdp.given.loading import parse_config
from m2fdp.given.retired import less_retired


def ledger_lines(parameters: dict[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The ledger of a run on digits, as its table has it; each row with the run's own epsilons.

    Args:
        parameters: nested, as `kedro run` has them.
        sizes: D_j of every device.

    Raises:
        InputError: the configuration is refused.
    """
    experiment = Experiment.from_config(parse_config(less_retired(parameters)), *_records(sizes))
    calibrated = experiment.calibrate()
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    of_the_run = {
        "rounds_planned": len(experiment.run_plan.rounds),
        "rounds": rounds,
        "epsilon_nominal": experiment.config.privacy.epsilon,
        "epsilon_verified": mechanism.epsilon(rounds),
        "epsilon_pooled": mechanism.ledger.pooled(rounds),
    }
    return [row | of_the_run for row in experiment.ledger().to_dict("records")]


def sights(parameters: dict[str, Any], sizes: Sequence[int]) -> Iterator[tuple[object, ...]]:
    """What follows from who reads what: the ledger's lines, where every observer reads what of
    every device in a round, and the rows of the table of zones.

    For arguments and errors see `ledger_lines`.
    """
    experiment = Experiment.from_config(parse_config(less_retired(parameters)), *_records(sizes))
    calibrated = experiment.calibrate()
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    ledger = mechanism.ledger
    for line in ledger.lines:
        told = [(noise, position.members) for position, noise in line.views]
        otherwise = line.account.noises[0] if line.account.noises else None
        words = line.kind, line.observer, line.sees, line.assumption
        shown = [
            (tuple(law.shifts), tuple(law.probabilities), count)
            for law, count in ledger.composition(line, rounds)
        ]
        yield *words, told, otherwise, line.account.spent, line.joins_unseen, shown
    for plan in dict.fromkeys(ledger.plans):
        vantage = Vantage(experiment.network, mechanism.lock_step, plan)
        for observer in rows():
            for device in range(experiment.network.tree.n_devices):
                place = place_of(vantage, observer, device)
                yield observer, device, None if place is None else tuple(vars(place).values())
    for row in experiment.zones_table().itertuples(index=False):
        yield tuple(row)


@contextmanager
def cut_off_at(last: int) -> Iterator[None]:
    """Trainings within it end with an OSError once they have done so many rounds."""
    whole_round = TreeProcess.round

    def cut_off(process: TreeProcess, state: Any, plan: Any) -> Any:
        after = whole_round(process, state, plan)
        if after.round == last:
            raise OSError("cut off")
        return after

    with mock.patch.object(TreeProcess, "round", cut_off):
        yield


def _records(sizes: Sequence[int]) -> tuple[Dataset, pd.DataFrame]:
    """As many records of the digits' shape as the devices hold; which are nothing to a ledger."""
    device = np.repeat(np.arange(len(sizes)), sizes)
    images, labels = np.zeros((len(device), 8, 8, 1), np.uint8), np.zeros(len(device), np.int64)
    columns = {"dataset": "digits", "sample": np.arange(len(device)), "split": "train"}
    manifest = pd.DataFrame(columns | {"label": labels, "device": device})
    return Dataset("digits", images, labels, n_train=len(device), n_classes=10), manifest
