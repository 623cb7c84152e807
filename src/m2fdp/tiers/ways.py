"""The ways in which the clients of one server train in epochs. Whoever plans, bills, builds or
checks such a run asks its way; nobody compares names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from m2fdp.core.algorithms import Algorithm, get_algorithm
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.privacy import sight
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.sight import KINDS
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.tiers.clock import (
    ModuleCosts,
    RoundTimes,
    TierCosts,
    fedavg_costs,
    fedgkt_costs,
    splitfed_costs,
    tier_costs,
)
from m2fdp.tiers.config import ClockConfig, TieringConfig


@dataclass(frozen=True, eq=False)
class Way:
    """A way to train in epochs. One that says nothing of itself averages whole models.

    Attributes:
        name: what tables call its seconds.
        costs: function from the modules' costs, the clock, the tiers and a client's epochs in a
            round to what client and server do and send of a record.
        whole: whether clients train the whole model, whoever computes it.
        tiered: whether clients are in tiers that a scheduler chooses, each with a loss of its own
            where it is cut, so that it computes while the server does (D eq. 5).
        averaged: whether clients send models, whose mean is the next one; else they send records'
            activations once a round, and all wait until the server's one model is trained on them.
        sees: what each kind of observer sees beside un-noised models; {how} = what was done to
            activations.
    """

    name: str
    costs: Callable[[ModuleCosts, ClockConfig, TieringConfig, int], TierCosts]
    whole: bool = False
    tiered: bool = False
    averaged: bool = True
    sees: Mapping[str, str] = field(default_factory=dict)

    def seconds(self, times: RoundTimes, tiers: np.ndarray, clock: ClockConfig) -> np.ndarray:
        """What a round takes each client in a tier, (n,), by all tiers (K,), -1 = absent. A shared
        server trains the clients' parts one after the other, so that each waits for all."""
        chosen = times.at(tiers)
        if clock.server == "shared" or not self.averaged:
            chosen = replace(chosen, server=np.full_like(chosen.server, chosen.server.sum()))
        return chosen.parallel() if self.tiered else chosen.sequential()


@dataclass(frozen=True)
class TierAlgorithm(Algorithm):
    """An algorithm whose devices train in epochs of their own, on a star, by the way `tiers`."""

    tiers: Way = field(kw_only=True)

    def check_private(self, name: str) -> None:
        raise InputError(
            "algorithm",
            name,
            f"is private, but clients that train by the way {self.tiers.name} "
            "(TierAlgorithm.tiers) draw no noise; valid: private=False",
        )


def way_of(config: Config) -> Way | None:
    """How the configured algorithm trains in epochs; None where it takes local steps."""
    algorithm = get_algorithm(config.algorithm)
    return algorithm.tiers if isinstance(algorithm, TierAlgorithm) else None


def seen_in_clear(config: Config, run_plan: RunPlan, ledger: Ledger) -> Ledger:
    """The ledger with what observers of tiers see beside un-noised models."""
    way = way_of(config)
    if way is None:
        return ledger
    how = ", their places shuffled," if config.leakage.patch_shuffling else ""
    lines = (
        replace(line, sees=way.sees[line.kind].format(how=how)) if line.kind in way.sees else line
        for line in ledger.lines
    )
    return replace(ledger, lines=tuple(lines))


_TO_SERVERS = [
    kind
    for kind, row in KINDS.items()
    if row.up in (sight.TO_SERVERS, sight.TO_CLOUD, sight.ON_LINKS)
]
_DEVICES = [kind for kind, row in KINDS.items() if row.is_device and row.up == sight.NOTHING]
_DOWN_LINKS = [
    kind for kind, row in KINDS.items() if (row.handed, row.drew) == (sight.EVERY, sight.NOBODY)
]
_SENT = dict.fromkeys(
    _TO_SERVERS, "activations{how} and labels of every record, and un-noised models"
)

FEDAVG = Way("fedavg", lambda modules, *_: fedavg_costs(modules), whole=True)
# Clients have the first modules, and wait in every batch for the server's gradient (D A.5).
SPLITFED = Way("splitfed", lambda modules, *_: splitfed_costs(modules), whole=True, sees=_SENT)
DTFL = Way(
    "dtfl",
    lambda modules, clock, tiering, epochs: tier_costs(modules, tiering.tiers, tiering.whole_model),
    tiered=True,
    sees=_SENT,
)
# Clients' small models and the server's large one teach each other by scores (He et al. 2020).
FEDGKT = Way(
    "fedgkt",
    lambda modules, clock, tiering, epochs: fedgkt_costs(modules, epochs),
    averaged=False,
    sees={
        **dict.fromkeys(_TO_SERVERS, "activations, logits and labels of every record"),
        **dict.fromkeys(_DEVICES, "un-noised logits of the server's model for their own records"),
        **dict.fromkeys(_DOWN_LINKS, "un-noised logits of the server's model for every record"),
    },
)
