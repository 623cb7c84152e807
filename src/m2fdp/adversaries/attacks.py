"""What an observer takes from a run's own messages: views, attacks, and epsilon beside it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch

from m2fdp.adversaries.facts import SEES_MODELS, check_attack
from m2fdp.adversaries.inversion import Knowledge, Message, check_linear_first_layer, last_rows
from m2fdp.adversaries.membership import confidences, deal_targets, judge, power_of, scores_of
from m2fdp.adversaries.reconstruction import Kept, Records, best_of, reconstruct
from m2fdp.adversaries.views import broadcasts, overhear
from m2fdp.core.config import essentials
from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.engine.training import evaluate
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.formatting import EPSILON_NAMES, for_json
from m2fdp.core.privacy.calibration import CalibratedMechanism
from m2fdp.core.privacy.sight import AT_CLOUD, FAR_DEVICES, KINDS, PUBLIC, lines_of
from m2fdp.core.streams import KeyedStreams, digest_of, generator, seeded

NOTE = (
    "A failed attack proves nothing: another may succeed. What bounds all attacks is epsilon, "
    "where it is small."
)


@dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack has taken: `record` is all of it, for JSON; infinite numbers are the text
    "inf". `metrics` in it are its numbers by name, `note` what must stand beside them."""

    record: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class _Attack:
    """An attack on a run.

    Attributes:
        mechanism: that really runs, whose ledger may not be what is claimed.
        on_done: called with how many starts or shadows are done, of how many.
    """

    run: Assembly
    mechanism: CalibratedMechanism
    store: Kept
    on_done: Callable[[int, int], None]

    def epsilon(self, observer: str, devices: np.ndarray, rounds: int) -> float:
        """The claimed ledger's, of the worst of these devices, after some rounds."""
        calibrated = self.run.calibration.mechanism
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


def attack_run(
    assembly: Assembly,
    folder: Path | None,
    on_done: Callable[[int, int], None],
    mechanism: CalibratedMechanism | None = None,
) -> Attacked:
    """Attack as configured, and clear away what was kept once all is done.

    Args:
        folder: place where results are kept until all are there, so that an attack that is cut off
            goes on; no other attack may use it. None = nowhere.
        on_done: called with how many starts or shadows are done, of how many.
        mechanism: that really runs, such as one with less noise than is claimed, in place of the
            calibrated one, whose ledger stays what is claimed.

    Raises:
        InputError: an attack that is not defined for the run, a model that can't be inverted, or
            nobody of the kind reads anything.
    """
    config = assembly.config
    check_attack(config, assembly.plan)
    if assembly.classified[0] != assembly.input_shape:
        problem = "is of records of one row; this table's are persons of several (`record`)"
        raise InputError("attack.method", config.attack.method, problem)
    set_exact_arithmetic()
    really = mechanism or assembly.calibration.mechanism
    attack = _Attack(assembly, really, Kept(folder, _key(assembly, really)), on_done)
    try_out = _membership if config.attack.method == "lira" else _reconstruction
    observers, found = try_out(attack)
    attack.store.clear()
    return Attacked(_common(assembly, observers) | found)


def _key(assembly: Assembly, mechanism: CalibratedMechanism) -> bytes:
    config, samples, noise = assembly.config, assembly.samples, mechanism.noise
    text = json.dumps([version("m2fdp"), essentials(config)], sort_keys=True)
    held = assembly.inputs.images[samples.samples], assembly.inputs.labels[samples.samples]
    drawn = noise.steps, *noise.heads, *noise.messages, *noise.broadcasts
    return digest_of(text, (samples.sizes, *held, *drawn))


def _common(assembly: Assembly, observers: Sequence[str]) -> dict[str, Any]:
    """What stands in the record of any attack."""
    config, calibrated = assembly.config, assembly.calibration
    epsilon = inf
    if calibrated.mechanism.private:
        epsilon = calibrated.mechanism.epsilon(calibrated.affordable_rounds)
    guarantee = "conditional" if assembly.conditions() else "verified"
    return {
        "method": config.attack.method,
        "observers": {kind: KINDS[kind].words for kind in observers},
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


def _reconstruction(attack: _Attack) -> tuple[Sequence[str], dict[str, Any]]:
    """The observer, and what it has reconstructed."""
    assembly, configured = attack.run, attack.run.config.attack
    observer = configured.observer or AT_CLOUD
    knowledge = _knowledge(assembly)
    messages = list(islice(_messages(attack, observer), configured.messages))
    starts = 1 if configured.method == "analytic" else configured.restarts
    features, labels = (part.cpu() for part in assembly.records(assembly.samples.samples))
    owners = np.repeat(np.arange(len(knowledge.sizes)), knowledge.sizes)
    held_out, _ = assembly.records(assembly.held_out)
    usual = held_out.cpu().mean(0)
    results, epsilons = [], []
    attack.on_done(0, starts * len(messages))
    for number, message in enumerate(messages):
        is_theirs = torch.from_numpy(np.isin(owners, message.devices))
        records = Records(features[is_theirs], labels[is_theirs].numpy(), usual)
        streams = KeyedStreams(assembly.config.seed, f"attack on message {number}".encode())
        found = []
        for start in reconstruct(message, knowledge, configured, attack.store, streams):
            found.append(start)
            attack.on_done(number * starts + len(found), starts * len(messages))
        epsilons.append(attack.epsilon(observer, message.devices, configured.round))
        result = best_of(found, message, records)
        pictures = result.pop("pictures")
        results.append(result | {"epsilon": for_json(epsilons[-1]), "pictures": pictures})
    labels_right = [each["labels_right"] for each in results if each["labels_right"] is not None]
    metrics = dict[str, Any]()
    if labels_right:
        metrics["labels_right"] = float(np.mean(labels_right))
    # Means over messages; of epsilon the least, which no message's is below.
    for name in ("psnr", "psnr_best", "psnr_blind", "ssim"):
        values = [each[name] for each in results]
        metrics[name] = float(max(values) if name == "psnr_best" else np.mean(values))
    metrics["epsilon"] = for_json(min(epsilons))
    return [observer], {"round": configured.round, "messages": results, "metrics": metrics}


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


def _messages(attack: _Attack, observer: str) -> Iterator[Message]:
    assembly, mechanism = attack.run, attack.mechanism
    process = assembly.process(assembly.simulation(mechanisms=(mechanism,)))
    plans = assembly.run_plan.rounds[: assembly.config.attack.round]
    try:
        for message in overhear(process, assembly.network, mechanism.lock_step, plans, observer):
            yield replace(message, start=message.start.cpu(), update=message.update.cpu())
    finally:
        process.executor.workers.end()


def _membership(attack: _Attack) -> tuple[Sequence[str], dict[str, Any]]:
    """The observers, and how well each tells members."""
    assembly, configured, seed = attack.run, attack.run.config.attack, attack.run.config.seed
    kinds = SEES_MODELS if configured.observer is None else (configured.observer,)
    calibrated, shadows = assembly.calibration, configured.shadows
    rounds, ledger = calibrated.affordable_rounds, calibrated.mechanism.ledger
    total = len(assembly.samples.samples)
    chosen = generator(seed, "attacked records").permutation(total)[: configured.targets]
    targets = np.sort(chosen)
    members = deal_targets(shadows, len(targets), generator(seed, "members"))
    results = []
    attack.on_done(0, shadows)
    for number, is_member in enumerate(members):
        train = partial(_shadow, assembly, attack.mechanism, targets, targets[~is_member], number)
        results.append(attack.store.get(f"shadow-{number}", train))
        attack.on_done(number + 1, shadows)
    metrics: dict[str, Any] = {"accuracy": float(np.mean([float(r["accuracy"]) for r in results]))}
    rows, rooms = [], []
    everybody = np.arange(len(assembly.samples.sizes))
    for kind in kinds:
        scores = scores_of(np.stack([result[kind] for result in results]), members)
        power = power_of(ledger, lines_of(kind, ledger.kinds), rounds)
        delta, confidence = assembly.config.privacy.delta, configured.confidence
        found = judge(scores, members[shadows // 2 :], power, delta, confidence)
        rooms.append(found.pop("room"))
        curve = found.pop("curve")
        found["epsilon"] = for_json(attack.epsilon(kind, everybody, rounds))
        metrics |= {f"{name}/{kind}": value for name, value in found.items()}
        rows.append({"observer": kind, **found, "curve": curve})
    metrics["room"] = min(rooms)
    counts = {"rounds": rounds, "targets": len(targets), "shadows": shadows}
    return kinds, counts | {"memberships": rows, "metrics": metrics}


def _shadow(
    assembly: Assembly,
    mechanism: CalibratedMechanism,
    targets: np.ndarray,
    absent: np.ndarray,
    number: int,
) -> dict[str, np.ndarray]:
    """Train a shadow without some records, and score all targets by its broadcasts."""
    seed, shards = assembly.config.seed, assembly.shards()
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
    own_seed = int(generator(seed, "shadow", number).integers(2**62))
    draws = seeded(own_seed, f"shadow {number} of {seed}".encode())
    simulation = assembly.simulation(mechanisms=(mechanism,), shards=shards_left, randomness=draws)
    process = assembly.process(simulation)
    plans = assembly.run_plan.rounds[: assembly.calibration.affordable_rounds]
    at = torch.from_numpy(targets).to(shards.labels.device)
    features, labels = shards.features[at], shards.labels[at]
    model, workers = simulation.model, process.executor.workers
    (summed, last), weights = np.zeros((2, len(targets))), model.initial_vector()
    for weights in broadcasts(process, plans):
        last = confidences(model, weights, features, labels)
        summed += last
    evaluated = evaluate(model, weights, *assembly.records(assembly.held_out), workers)
    workers.end()
    accuracy = np.array(evaluated.accuracy)
    return {PUBLIC: last, FAR_DEVICES: summed / len(plans), "accuracy": accuracy}
