"""What a run promises about privacy: what it rests on, what is outside it, what to know of it."""

from math import inf
from typing import Any

import numpy as np

from m2fdp.core.data.manifest import held_by_cloud, held_out
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.formatting import some_of
from m2fdp.core.privacy.rounding import ENFORCED, condition
from m2fdp.core.privacy.summary import assumptions_of_classes, conditions_of, summary, warnings
from m2fdp.core.rooms import brought


def conditions(assembly: Assembly) -> list[str]:
    """What epsilon rests on and nothing enforces, each as a sentence."""
    config, rounding = assembly.config, assembly.rounding
    lines = [*conditions_of(config), *assembly.known]
    lines += [part.assumption for part in assembly.calibration.own_parts if not part.enforced]
    if not (config.dataset.confirmed or assembly.dataset.scaled_by_constants):
        scale = (
            "constants known beforehand have scaled the floats of dataset.name="
            f"{config.dataset.name}, and not what the records hold (dataset.confirmed=true says so)"
        )
        lines.append(assembly.dataset.doubt or scale)
    if assembly.begins_too_long:
        shortest = min(plan.step_size for plan in assembly.run_plan.rounds)
        length = float(assembly.model.initial_vector().norm())
        lines.append(condition(rounding.rounded(length, shortest), rounding.moved(shortest)))
    return list(dict.fromkeys(lines))


def summarise(assembly: Assembly) -> dict[str, Any]:
    """What the run promises, ready for JSON; see `m2fdp.core.privacy.summary.summary`."""
    config, calibrated = assembly.config, assembly.calibration
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    promised = summary(mechanism, rounds, config.privacy, conditions(assembly))
    if not mechanism.private:
        return promised
    held = {split: len(held_by_cloud(assembly.dealt, split)) for split in ("validation", "test")}
    by_devices = len(held_out(assembly.dealt, "validation")[0]) - held["validation"]
    rounded = assembly.rounding.least_move < inf and not assembly.begins_too_long
    others = [ENFORCED] * rounded + assumptions_of_classes(config.dataset.name)
    for of_room in brought("promised"):
        added = of_room(assembly)
        others += added.assumptions
        promised |= added.entries
    others += [part.assumption for part in calibrated.own_parts if part.enforced]
    own_code = [part.record for part in calibrated.own_parts]
    return promised | {
        "assumptions": promised["assumptions"] + others,
        **({"own_code": own_code} if own_code else {}),
        "records_in_clear": held,
        "outside_the_promise": _outside_the_promise(**held, of_devices=by_devices),
    }


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


def _of_records(assembly: Assembly) -> list[str]:
    """What accuracy, or the protection of records, suffers from."""
    dataset, lines = assembly.dataset, list(assembly.repeats)
    trained = np.unique(dataset.labels[assembly.samples.samples])
    absent = np.setdiff1d(np.arange(dataset.n_classes), trained)
    if len(absent):
        lines.append(
            f"{len(absent)} of {dataset.n_classes} classes have no training record, "
            f"{some_of(absent.tolist())}: models never learn them"
        )
    return lines


def warn(assembly: Assembly) -> list[str]:
    """A line for each thing that a user can change and should know before trusting epsilon, or
    what a run will make of it."""
    config, calibrated = assembly.config, assembly.calibration
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    privacy, batch_size = config.privacy, config.training.batch_size
    lines, most = [], int(assembly.samples.sizes.max())
    if batch_size is not None and batch_size > most:
        lines.append(
            f"training.batch_size = {batch_size:g} is more than any device's records, at most "
            f"{most}: every step uses all of them, as with null, and sampling protects nobody"
        )
    lines += _of_records(assembly)
    lines += warnings(mechanism, rounds, privacy, conditions(assembly))
    planned = len(mechanism.ledger.plans)
    if rounds < planned:
        lines.append(
            f"training stops after {rounds} of {planned} rounds: the next one would pass "
            f"privacy.budget {privacy.budget:g}"
        )
    held = len(held_by_cloud(assembly.dealt, "validation"))
    if mechanism.private and held:
        lines.append(
            f"{held} validation records lie in clear with the cloud: ε does not cover them"
        )
    for of_room in brought("warned"):
        lines += of_room(assembly)
    return lines
