"""What an experiment hands back, and the user's own code that its promise rests on."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from torch import Tensor

from m2fdp.core.formatting import counted
from m2fdp.core.metrics import leading
from m2fdp.core.privacy.calibration import CalibratedMechanism
from m2fdp.core.privacy.ledger import Ledger


@dataclass(frozen=True)
class OwnPart:
    """One piece of a user's code in a private run, and what epsilon rests on of it.

    What the engine bounds itself stays verified: plans are data, gradients are taken record by
    record and clipped, a clip factor's answer is cut. All other code beside records makes epsilon
    conditional on it, always: nothing can enforce what else it looks at.

    Attributes:
        key: the configuration's key that names it, as `name`.
        part: what it is for.
        trusted: what epsilon rests on, as a predicate of the `file` that it stands in.
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
        measure = leading(last := self.metrics.iloc[-1])
        return (
            f"Trained({counted(self.rounds, 'round')}: {measure.words} {last[measure.name]:.4f}, "
            f"loss {self.loss:.4f}, epsilon {self.epsilon:.4g})"
        )
