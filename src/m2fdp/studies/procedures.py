"""What a search and the run that it chooses may spend, so that together they keep epsilon."""

from collections.abc import Callable, Sequence
from functools import cache

from m2fdp.core.config import Config, DatasetConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.experiment import Experiment
from m2fdp.selection.accounting import Procedure, Targets, split_target

# From a candidate's runs, each searched and released, and the search's share, to their targets.
Counting = Callable[[Sequence[Config], Sequence[Config], float], Targets]
# Where all is too much together, shifts get less by what is too much, and by this besides.
_MARGIN = 0.998
_MOST_TRIES = 10


def procedure_of(released: Config, searched: Sequence[Config]) -> Procedure:
    """The procedure of these configurations' runs; an `InputError` where a run can't be."""
    return Procedure(_ledger_of(released), tuple(map(_ledger_of, searched)))


def if_gaussian(searched: Sequence[Config], released: Sequence[Config], share: float) -> Targets:
    """Targets of runs that are Gaussian in all; no data are read.

    Args:
        searched: the configuration of each run of the search, with the target of the whole.
        released: the configuration of the released run under each schedule that may be chosen.
        share: the search's part of the squared shift.
    """
    privacy = released[0].privacy
    return split_target(privacy.epsilon, privacy.delta, len(searched), share)


def verified_targets(
    searched: Sequence[Config], released: Sequence[Config], share: float
) -> Targets:
    """Targets whose runs keep the target of the whole by their ledgers, whichever is released.

    Arguments are those of `if_gaussian`.

    Raises:
        InputError: data that can't be had, or no such targets.
    """
    privacy, factor = released[0].privacy, 1.0
    for _ in range(_MOST_TRIES):
        found = split_target(privacy.epsilon, privacy.delta, len(searched), share, factor)
        ledgers = tuple(_ledger_of(_towards(each, found.searched)) for each in searched)
        whole = max(
            Procedure(_ledger_of(_towards(each, found.released)), ledgers).verified()
            for each in released
        )
        if whole <= privacy.epsilon:
            return found
        factor *= _MARGIN * privacy.epsilon / whole
    raise InputError(
        "search.counted",
        True,
        f"finds no noise for which {len(searched)} runs and the released one keep "
        f"privacy.epsilon: {privacy.epsilon:g} together; try fewer schedules, or full batches",
    )


def _towards(config: Config, epsilon: float) -> Config:
    """The configuration with another target."""
    privacy = config.privacy.model_copy(update={"epsilon": epsilon})
    return config.model_copy(update={"privacy": privacy})


def _ledger_of(config: Config) -> Ledger:
    return _ledger_of_text(config.model_dump_json())


@cache  # checks, searches and reports ask for the same ones
def _ledger_of_text(text: str) -> Ledger:
    config = Config.model_validate_json(text)
    dataset = _dataset(config.dataset.model_dump_json())
    return Experiment.from_config(config, dataset).calibrate().mechanism.ledger


@cache
def _dataset(text: str) -> Dataset:
    return load_dataset(DatasetConfig.model_validate_json(text))
