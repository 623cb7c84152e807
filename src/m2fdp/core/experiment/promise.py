"""What a run promises about privacy: what it rests on, what is outside it, what to know of it."""

from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.core.config.keys import OF_LABELS
from m2fdp.core.data.manifest import held_by_cloud, held_out
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.results import Calibration
from m2fdp.core.formatting import some_of
from m2fdp.core.privacy.ledger import epsilon_over_rounds, ledger_table
from m2fdp.core.privacy.rounding import ENFORCED
from m2fdp.core.privacy.summary import CLASSES, exposed_links
from m2fdp.core.privacy.summary import summary as summary_of
from m2fdp.core.privacy.summary import warnings as warnings_of
from m2fdp.core.rooms import brought


@dataclass(frozen=True, eq=False, repr=False)
class Promising(Assembly):
    """A run that tells what it promises."""

    def calibrate(self) -> Calibration:
        """The mechanisms for these shards and rounds, and the rounds that the budget affords."""
        return self.calibration

    def ledger(self) -> pd.DataFrame:
        """One row for each observer of each position of a data owner; see
        `m2fdp.core.privacy.ledger.ledger_table`."""
        return ledger_table(*self.calibration.accounted, self.conditions())

    def epsilon_over_rounds(self) -> pd.DataFrame:
        """Epsilon of each kind of observer after some rounds, to plan a budget."""
        return epsilon_over_rounds(*self.calibration.accounted)

    def exposed_links(self) -> list[str]:
        """A line on the links on which nobody may listen, if there are any."""
        found = self.calibration
        return exposed_links(found.mechanism, found.affordable_rounds, self.config.privacy)

    def summary(self) -> dict[str, Any]:
        """What the run promises, ready for JSON; see `m2fdp.core.privacy.summary.summary`."""
        config, calibrated = self.config, self.calibration
        mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
        promised = summary_of(mechanism, rounds, config.privacy, self.conditions())
        if not mechanism.private:
            return promised
        held = {split: len(held_by_cloud(self.dealt, split)) for split in ("validation", "test")}
        by_devices = len(held_out(self.dealt, "validation")[0]) - held["validation"]
        rounded = self.rounding.least_move < inf and not self.begins_too_long
        others = [ENFORCED] * rounded + [CLASSES] * (config.dataset.name in OF_LABELS)
        for of_room in brought("promised"):
            added = of_room(self)
            others += added.assumptions
            promised |= added.entries
        others += [part.assumption for part in calibrated.own_parts if part.enforced]
        own_code = [asdict(part) for part in calibrated.own_parts]
        return promised | {
            "assumptions": promised["assumptions"] + others,
            **({"own_code": own_code} if own_code else {}),
            "records_in_clear": held,
            "outside_the_promise": _outside_the_promise(**held, of_devices=by_devices),
        }

    def warnings(self) -> list[str]:
        """A line for each thing that a user can change and should know before trusting epsilon, or
        what a run will make of it."""
        config, calibrated = self.config, self.calibration
        mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
        privacy, batch_size = config.privacy, config.training.batch_size
        lines, most = [], int(self.samples.sizes.max())
        if batch_size is not None and batch_size > most:
            lines.append(
                f"training.batch_size = {batch_size:g} is more than any device's records, at most "
                f"{most}: every step uses all of them, as with null, and sampling protects nobody"
            )
        lines += self._of_records()
        lines += warnings_of(mechanism, rounds, privacy, self.conditions())
        planned = len(mechanism.ledger.plans)
        if rounds < planned:
            lines.append(
                f"training stops after {rounds} of {planned} rounds: the next one would pass "
                f"privacy.budget {privacy.budget:g}"
            )
        held = len(held_by_cloud(self.dealt, "validation"))
        if mechanism.private and held:
            lines.append(
                f"{held} validation records lie in clear with the cloud: ε does not cover them"
            )
        for of_room in brought("warned"):
            lines += of_room(self)
        return lines

    def _of_records(self) -> list[str]:
        """What accuracy, or the protection of records, suffers from."""
        dataset, lines = self.dataset, list(self.repeats)
        trained = np.unique(dataset.labels[self.samples.samples])
        absent = np.setdiff1d(np.arange(dataset.n_classes), trained)
        if len(absent) and dataset.n_classes > 1:
            lines.append(
                f"{len(absent)} of {dataset.n_classes} classes have no training record, "
                f"{some_of(absent.tolist())}: models never learn them"
            )
        return lines


def _outside_the_promise(validation: int, test: int, of_devices: int) -> list[str]:
    """What epsilon says nothing about: the cloud's own records, and outputs in clear."""
    sentences = []
    if validation:
        sentences.append(
            f"{validation:,} validation records, held out of the training records, lie in clear "
            "with the cloud; a schedule chosen on them is a release that epsilon does not count, "
            "also where a later run trains on them"
        )
    if test:
        sentences.append(f"{test:,} test records lie in clear with the cloud")
    if of_devices:
        sentences.append(
            f"accuracies on the {of_devices:,} records that devices hold out are without noise "
            "in what follows; the score alone is a release, which epsilon counts"
        )
    return [*sentences, *(str(clear) for listed in brought("outside") for clear in listed)]
