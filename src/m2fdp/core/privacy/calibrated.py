"""What a run trains with: a mechanism whose noise is decided, and the ledger that says why."""

from bisect import bisect_right
from dataclasses import dataclass

from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.mechanisms import Protection


@dataclass(frozen=True, eq=False)
class CalibratedMechanism(Protection):
    """Everything the privacy configuration decides about a run.

    Attributes:
        ledger: what every observer learns.
    """

    ledger: Ledger

    def epsilon(self, rounds: int) -> float:
        """Verified epsilon after some rounds: the largest over records and distrusted observers."""
        return self.ledger.verified(rounds)

    def affordable_rounds(self, budget: float | None) -> int:
        """How many of the planned rounds stay within a budget; all of them without one."""
        planned = len(self.ledger.plans)
        if budget is None or not self.private or self.epsilon(planned) <= budget:
            return planned
        return bisect_right(range(planned), budget, lo=1, key=self.epsilon) - 1
