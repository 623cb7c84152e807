"""What an experiment hands back, and the user's own code that its promise rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import pandas as pd
from torch import Tensor

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.engine.clipping import OneByOne
from m2fdp.core.engine.local_rules import OwnRule
from m2fdp.core.formatting import counted
from m2fdp.core.metrics import KEY
from m2fdp.core.own_code import file_of, is_ours, is_own
from m2fdp.core.privacy.calibrated import CalibratedMechanism
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.mechanisms import get_mechanism

_SHOWN_ONLY = "looks at nothing but the labels, scores and losses that it is handed"
_PUBLIC = "holds nothing that was learnt from private records"
_HANDED_ONLY = "touches records only through what it is handed, and keeps nothing for later"
# Keys that name own code, what it is for, what is trusted of it, and whether that is enforced.
_NAMED = (
    (
        "privacy.mechanism",
        "mechanism",
        "draws the noise that it counts on, and says no less of a record than is true",
        False,
    ),
    ("model.name", "model", _PUBLIC, True),
    ("model.loss", "loss", _PUBLIC, True),
    ("partition.scheme", "split", "tells nothing by which device holds which record", False),
    (
        "dataset.name",
        "data set",
        "makes of each record what it says, and nothing of it of another's",
        False,
    ),
)
# Where noise comes after several steps, the ledger's shifts are those of plain ones.
_NO_FURTHER = ", and parts two models no further than plain steps do"


@dataclass(frozen=True)
class OwnPart:
    """One piece of a user's code in a private run, and what epsilon rests on of it.

    What the engine bounds itself stays verified: plans are data, gradients are taken record by
    record and clipped, a clip factor's answer is cut. All other code that runs beside records makes
    epsilon conditional on it, always: nothing can enforce what else it looks at.

    Attributes:
        key: key of the configuration that names it.
        name: what it is called there.
        part: what it is for.
        file: the file that it stands in.
        trusted: what epsilon rests on, as a predicate of the file.
        enforced: whether the engine bounds what it does; else epsilon is conditional on it.
    """

    key: str
    name: str
    part: str
    file: str
    trusted: str
    enforced: bool

    @property
    def assumption(self) -> str:
        """The same as a sentence."""
        return f"{self.file}, the {self.part} of {self.key}={self.name}, {self.trusted}"

    @property
    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def own_parts(config: Config, plan: Plan) -> tuple[OwnPart, ...]:
    """The user's own code in a run, which has a promise to keep; nothing where it has none."""
    if not plan.private:
        return ()
    named = [(KEY, name, "metric", _SHOWN_ONLY, True) for name in config.training.metrics]
    for key, part, trusted, enforced in _NAMED:
        name = attrgetter(key)(config)
        if name is not None and is_own(name):
            named.append((key, name, part, trusted, enforced))
    return (
        *_of_the_plan(config, plan),
        *(
            OwnPart(key, name, part, file_of(name), trusted, enforced)
            for key, name, part, trusted, enforced in named
        ),
    )


def _of_the_plan(config: Config, plan: Plan) -> list[OwnPart]:
    """Of an algorithm's plan and rules those that are a user's."""
    name, parts = config.algorithm, []

    def add(what: str, thing: object, trusted: str, enforced: bool) -> None:
        file = file_of(name if is_own(name) else type(thing).__module__)
        parts.append(OwnPart("algorithm", name, what, file, trusted, enforced))

    rules = plan.rules
    if is_own(name):
        add("plan", plan, "plans nothing by private records", True)
    if isinstance(rules.local, OwnRule):
        mechanism, privacy = get_mechanism(config.privacy.mechanism), config.privacy
        by_steps = mechanism.clipping(privacy).batch_norm and not mechanism.noises_every_step
        trusted = _HANDED_ONLY + (_NO_FURTHER if by_steps else "")
        add("local rule", rules.local.rule, trusted, False)
    if not is_ours(rules.server):
        add("server rule", rules.server, _HANDED_ONLY, False)
    if isinstance(rules.clip_factor, OneByOne):
        add("clip factor", rules.clip_factor.factor, "follows from the norm that it is given", True)
    return parts


@dataclass(frozen=True, eq=False)
class Calibration:
    """The mechanisms of a run, and how far the budget goes.

    Attributes:
        mechanisms: one for each network of the run plan; they share one ledger.
        affordable_rounds: number of the planned rounds that are trained.
        own_parts: the user's own code that the promise rests on.
    """

    mechanisms: tuple[CalibratedMechanism, ...]
    affordable_rounds: int
    own_parts: tuple[OwnPart, ...] = ()

    @property
    def mechanism(self) -> CalibratedMechanism:
        """That of the first network, in which all configured devices take part."""
        return self.mechanisms[0]

    @property
    def accounted(self) -> tuple[Ledger, int]:
        """What the tables of a ledger are of: it, and after how many rounds."""
        return self.mechanism.ledger, self.affordable_rounds


@dataclass(frozen=True, eq=False, repr=False)
class Trained:
    """A trained model.

    Attributes:
        state_dict: its parameters by name, on the CPU.
        metrics: a row an evaluated round, columns as in `m2fdp.core.engine.training.RoundRecord`;
            also what was decided of the rounds, if they were not known before.
        warning: a line where training diverged or drowned in noise, or the model answers one class
            only; else None.
    """

    state_dict: Mapping[str, Tensor]
    metrics: pd.DataFrame
    warning: str | None

    @property
    def rounds(self) -> int:
        """How many were trained."""
        return int(self.metrics["round"].iloc[-1])

    @property
    def accuracy(self) -> float:
        """After the last round, on the records that the cloud evaluates on."""
        return float(self.metrics["accuracy"].iloc[-1])

    @property
    def loss(self) -> float:
        """After the last round, on the same records."""
        return float(self.metrics["loss"].iloc[-1])

    @property
    def epsilon(self) -> float:
        """Verified; NaN without privacy."""
        return float(self.metrics["epsilon"].iloc[-1])

    def __repr__(self) -> str:
        return (
            f"Trained({counted(self.rounds, 'round')}: accuracy {self.accuracy:.4f}, "
            f"loss {self.loss:.4f}, epsilon {self.epsilon:.4g})"
        )
