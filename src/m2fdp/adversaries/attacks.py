"""What an observer takes from a run's own messages: views, attacks, and epsilon beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from math import inf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from m2fdp.adversaries.facts import SEES_MODELS, check_attack
from m2fdp.adversaries.inversion import check_linear_first_layer
from m2fdp.adversaries.knowledge import Knowledge, Message, last_rows
from m2fdp.adversaries.membership import (
    RATES,
    Membership,
    confidences,
    deal_targets,
    judge,
    power_of,
    scores_of,
)
from m2fdp.adversaries.reconstruction import Kept, Reconstruction, Records, best_of, reconstruct
from m2fdp.adversaries.views import broadcasts, overhear
from m2fdp.core.config import essentials
from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.engine.training import evaluate
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.promise import conditions
from m2fdp.core.formatting import EPSILON_NAMES, for_json
from m2fdp.core.privacy.calibrated import CalibratedMechanism
from m2fdp.core.privacy.sight import AT_CLOUD, FAR_DEVICES, KINDS, PUBLIC, lines_of
from m2fdp.core.streams import KeyedStreams, digest_of, generator, seeded

NOTE = (
    "A failed attack proves nothing: another may succeed. What bounds all attacks is epsilon, "
    "where it is small."
)
# Called with how many starts or shadows are done, of how many.
Counter = Callable[[int, int], None]
# Pixels are told in so many levels.
_LEVELS = 255


def attack_run(
    assembly: Assembly,
    folder: Path | None,
    on_done: Counter,
    mechanism: CalibratedMechanism | None = None,
) -> Attacked:
    """Attack as configured, and clear away what was kept once all is done.

    Args:
        folder: place where results are kept until all are there, so that an attack that is cut off
            goes on; no other attack may use it. None = nowhere.
        mechanism: that really runs, such as one with less noise than is claimed, in place of the
            calibrated one, whose ledger stays what is claimed.

    Raises:
        InputError: an attack that is not defined for the run, a model that can't be inverted, or
            nobody of the kind reads anything.
    """
    check_attack(assembly.config, assembly.plan)
    set_exact_arithmetic()
    store = Kept(folder, _key(assembly, mechanism))
    attack = _membership if assembly.config.attack.method == "lira" else _reconstruction
    attacked = attack(assembly, store, on_done, mechanism)
    store.clear()
    return attacked


def _key(assembly: Assembly, mechanism: CalibratedMechanism | None) -> bytes:
    config, samples = assembly.config, assembly.samples
    text = json.dumps([version("m2fdp"), essentials(config)], sort_keys=True)
    drawn = (mechanism or assembly.calibration.mechanism).noise
    held = assembly.inputs.images[samples.samples], assembly.inputs.labels[samples.samples]
    noise = drawn.steps, *drawn.heads, *drawn.messages, *drawn.broadcasts
    return digest_of(text, (samples.sizes, *held, *noise))


def _reconstruction(
    assembly: Assembly, store: Kept, on_done: Counter, mechanism: CalibratedMechanism | None
) -> Attacked:
    config, attack = assembly.config, assembly.config.attack
    observer = attack.observer or AT_CLOUD
    knowledge = _knowledge(assembly)
    messages = list(islice(_messages(assembly, observer, mechanism), attack.messages))
    starts = 1 if attack.method == "analytic" else attack.restarts
    features, labels = assembly.records(assembly.samples.samples)
    features, labels = features.cpu(), labels.cpu()
    owners = np.repeat(np.arange(len(knowledge.sizes)), knowledge.sizes)
    held_out, _ = assembly.records(assembly.held_out)
    usual = held_out.cpu().mean(0)
    results, epsilons = [], []
    on_done(0, starts * len(messages))
    for number, message in enumerate(messages):
        is_theirs = torch.from_numpy(np.isin(owners, message.devices))
        records = Records(features[is_theirs], labels[is_theirs].numpy(), usual)
        streams = KeyedStreams(config.seed, f"attack on message {number}".encode())
        found = []
        for start in reconstruct(message, knowledge, attack, store, streams):
            found.append(start)
            on_done(number * starts + len(found), starts * len(messages))
        results.append(best_of(found, message, records))
        epsilons.append(_epsilon(assembly, observer, message.devices, attack.round))
    record = _common(assembly, [observer]) | {
        "round": attack.round,
        "messages": [_plain(*pair) for pair in zip(results, epsilons, strict=True)],
        "metrics": _summed_up(results, epsilons),
    }
    return Attacked(record, tuple(results))


def _knowledge(assembly: Assembly) -> Knowledge:
    """What the attacker knows; a model that the method can't invert is refused here."""
    clipping, model = assembly.calibration.mechanism.clipping, assembly.model
    norms = clipping.record_norm, clipping.batch_norm or clipping.update_norm
    knowledge = Knowledge(model, *assembly.classified, assembly.samples.sizes, *norms)
    if assembly.config.attack.method == "analytic":
        check_linear_first_layer(knowledge)
    if assembly.config.attack.method != "dlg":
        last_rows(model.initial_vector(), knowledge)
    return knowledge


def _messages(
    assembly: Assembly, observer: str, mechanism: CalibratedMechanism | None
) -> Iterator[Message]:
    calibrated = mechanism or assembly.calibration.mechanism
    simulation = assembly.simulation(mechanisms=(calibrated,))
    plans = assembly.run_plan.rounds[: assembly.config.attack.round]
    process = assembly.process(simulation)
    try:
        for message in overhear(process, assembly.network, calibrated.lock_step, plans, observer):
            yield replace(message, start=message.start.cpu(), update=message.update.cpu())
    finally:
        process.executor.workers.end()


def _epsilon(assembly: Assembly, observer: str, devices: np.ndarray, rounds: int) -> float:
    """The ledger's, of the worst of these devices, for this kind of observer after some rounds."""
    calibrated = assembly.calibration.mechanism
    if not calibrated.private:
        return inf
    members, ledger = set(devices.tolist()), calibrated.ledger
    kinds = lines_of(observer, ledger.kinds)
    found = (
        ledger.epsilon(line, rounds)
        for line in ledger.lines
        if line.kind in kinds and members & set(line.position.members)
    )
    return max(found, default=inf)


def _plain(result: Reconstruction, epsilon: float) -> dict[str, Any]:
    """One message, for JSON; its pictures in 256 levels, (H, W, C)."""
    pictures = [
        {"found": _levels(image), "truth": _levels(truth), "psnr": float(decibels)}
        for image, truth, decibels in zip(result.images, result.truths, result.psnr, strict=True)
    ]
    return {
        "sees": result.sees,
        "devices": result.devices,
        "records": result.records,
        "images": len(result.images),
        "psnr": float(result.psnr.mean()),
        "psnr_best": float(result.psnr.max()),
        "psnr_blind": result.blind_psnr,
        "ssim": float(result.ssim.mean()),
        "labels_right": None if isnan(result.labels) else result.labels,
        "misfit": for_json(result.misfit),
        "epsilon": for_json(epsilon),
        "pictures": pictures,
    }


def _levels(image: Tensor) -> list:
    return (image.clamp(0, 1) * _LEVELS).round().to(torch.uint8).permute(1, 2, 0).tolist()


def _summed_up(results: list[Reconstruction], epsilons: list[float]) -> dict[str, Any]:
    """Means over messages; of epsilon the least, which no message's is below."""
    labels = [result.labels for result in results if not isnan(result.labels)]
    read = {"labels_right": float(np.mean(labels))} if labels else {}
    return read | {
        "psnr": float(np.mean([result.psnr.mean() for result in results])),
        "psnr_best": float(max(result.psnr.max() for result in results)),
        "psnr_blind": float(np.mean([result.blind_psnr for result in results])),
        "ssim": float(np.mean([result.ssim.mean() for result in results])),
        "epsilon": for_json(min(epsilons)),
    }


def _membership(
    assembly: Assembly, store: Kept, on_done: Counter, mechanism: CalibratedMechanism | None
) -> Attacked:
    config, attack = assembly.config, assembly.config.attack
    kinds = SEES_MODELS if attack.observer is None else (attack.observer,)
    calibrated = assembly.calibration
    rounds, ledger = calibrated.affordable_rounds, calibrated.mechanism.ledger
    total = len(assembly.samples.samples)
    chosen = generator(config.seed, "attacked records").permutation(total)[: attack.targets]
    targets = np.sort(chosen)
    stream = generator(config.seed, "members")
    members = deal_targets(attack.shadows, len(targets), stream)
    drawn = mechanism or calibrated.mechanism
    results: dict[str, list[np.ndarray]] = {kind: [] for kind in kinds}
    accuracies = []
    on_done(0, attack.shadows)
    for number, is_member in enumerate(members):
        absent = targets[~is_member]
        train = partial(_shadow, assembly, drawn, targets, absent, number)
        result = store.get(f"shadow-{number}", train)
        for kind in kinds:
            results[kind].append(result[kind])
        accuracies.append(float(result["accuracy"]))
        on_done(number + 1, attack.shadows)
    half = attack.shadows // 2
    memberships = {
        kind: judge(
            scores_of(np.stack(values), members),
            members[half:],
            power_of(ledger, lines_of(kind, ledger.kinds), rounds),
            config.privacy.delta,
            attack.confidence,
        )
        for kind, values in results.items()
    }
    everybody = np.arange(len(assembly.samples.sizes))
    numbers = {
        kind: _numbers(membership, _epsilon(assembly, kind, everybody, rounds))
        for kind, membership in memberships.items()
    }
    metrics: dict[str, Any] = {"accuracy": float(np.mean(accuracies))}
    for kind, values in numbers.items():
        metrics |= {f"{name}/{kind}": value for name, value in values.items()}
    metrics["room"] = min(membership.room for membership in memberships.values())
    record = _common(assembly, kinds) | {
        "rounds": rounds,
        "targets": len(targets),
        "shadows": attack.shadows,
        "memberships": [
            {"observer": kind, **numbers[kind], "curve": membership.curve.tolist()}
            for kind, membership in memberships.items()
        ],
        "metrics": metrics,
    }
    return Attacked(record, memberships=memberships)


def _shadow(
    assembly: Assembly,
    mechanism: CalibratedMechanism,
    targets: np.ndarray,
    absent: np.ndarray,
    number: int,
) -> dict[str, np.ndarray]:
    """Train a shadow without some records, and score all targets by its broadcasts."""
    config, shards = assembly.config, assembly.shards()
    is_present = np.ones(len(shards.labels), dtype=bool)
    is_present[absent] = False
    owners = np.repeat(np.arange(len(shards.sizes)), shards.sizes)
    rows = torch.from_numpy(np.flatnonzero(is_present)).to(shards.labels.device)
    shards_left = replace(
        shards,
        features=shards.features[rows],
        labels=shards.labels[rows],
        sizes=np.bincount(owners[is_present], minlength=len(shards.sizes)),
        nominal=shards.sizes,
    )
    # Of no other shadow's, nor of the run's own.
    seed = int(generator(config.seed, "shadow", number).integers(2**62))
    draws = seeded(seed, f"shadow {number} of {config.seed}".encode())
    simulation = assembly.simulation(mechanisms=(mechanism,), shards=shards_left, randomness=draws)
    process = assembly.process(simulation)
    plans = assembly.run_plan.rounds[: assembly.calibration.affordable_rounds]
    at = torch.from_numpy(targets).to(shards.labels.device)
    features, labels = shards.features[at], shards.labels[at]
    model = simulation.model
    (summed, last), weights = np.zeros((2, len(targets))), model.initial_vector()
    for weights in broadcasts(process, plans):
        last = confidences(model, weights, features, labels)
        summed += last
    evaluated = evaluate(
        model, weights, *assembly.records(assembly.held_out), process.executor.workers
    )
    process.executor.workers.end()
    return {
        PUBLIC: last,
        FAR_DEVICES: summed / len(plans),
        "accuracy": np.array(evaluated.accuracy),
    }


def _numbers(membership: Membership, epsilon: float) -> dict[str, Any]:
    values: dict[str, Any] = {"auc": membership.auc, "auc_most": membership.auc_most}
    for rate, rate_found, rate_most in zip(RATES, membership.tpr, membership.tpr_most, strict=True):
        values |= {f"tpr_at_{rate:g}": rate_found, f"tpr_most_at_{rate:g}": rate_most}
    return values | {"epsilon_lower": membership.epsilon_lower, "epsilon": for_json(epsilon)}


def _common(assembly: Assembly, kinds: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """What stands in the record of any attack."""
    config, calibrated = assembly.config, assembly.calibration
    epsilon = inf
    if calibrated.mechanism.private:
        epsilon = calibrated.mechanism.epsilon(calibrated.affordable_rounds)
    guarantee = "conditional" if conditions(assembly) else "verified"
    return {
        "method": config.attack.method,
        "observers": {kind: KINDS[kind].words for kind in kinds},
        "algorithm": config.algorithm,
        "dataset": config.dataset.name,
        "model": config.model.name,
        EPSILON_NAMES[guarantee]: for_json(epsilon),
        "guarantee": guarantee,
        "delta": config.privacy.delta,
        "unit": config.privacy.unit,
        "adjacency": config.privacy.adjacency,
        "note": NOTE,
    }


if TYPE_CHECKING:
    pass


@dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack has taken.

    Attributes:
        record: all of it, for JSON; infinite numbers are the text "inf". `metrics` are its numbers
            by name, `note` what must stand beside them.
        reconstructions: results of messages, in order; none of lira.
        memberships: results by the observer's kind; none of a reconstruction.
    """

    record: Mapping[str, Any]
    reconstructions: tuple[Reconstruction, ...] = ()
    memberships: Mapping[str, Membership] | None = None
