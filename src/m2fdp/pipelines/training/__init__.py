"""Calibrate the mechanism and train; progress in the terminal, metrics in MLflow meanwhile."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from kedro.pipeline import Pipeline
from mlflow.entities import Metric
from torch import Tensor

from m2fdp.checkpoints.files import Checkpoint, clear, load_latest, save
from m2fdp.checkpoints.verdict import Verdict, kept, run_digest
from m2fdp.checkpoints.verdict import keep as keep_verdict
from m2fdp.convergence.descent import as_noise_allows
from m2fdp.core.config import PIXELS, essentials
from m2fdp.core.engine.execution import available_cores
from m2fdp.core.engine.training import Checkpointing, Listener, Progress, RoundRecord
from m2fdp.core.formatting import EPSILON_NAMES
from m2fdp.core.metrics import SCORE, WALL
from m2fdp.expectations.process import settle
from m2fdp.experiment import Experiment
from m2fdp.pipelines.cells import refusal
from m2fdp.pipelines.datasets import node
from m2fdp.pipelines.logged_models import ServableModel
from m2fdp.pipelines.provenance import computed_by, own_code
from m2fdp.pipelines.recording import Outbox
from m2fdp.processes.sites import sites_of
from m2fdp.progress import progress_bar
from m2fdp.tables.rows import RowMap

# One commit a point is far slower than one a batch, and nobody looks more often than this.
_SECONDS_BETWEEN_WRITES = 2.0

logger = logging.getLogger(__name__)


@contextmanager
def tracked_progress(
    rounds: int,
    start: Progress | None,
    outbox: Outbox,
    clock: Callable[[], float] = time.monotonic,
    group: str = "control",
) -> Iterator[Listener]:
    """A listener that shows how far training is (`progress_bar`), and logs metrics in batches.

    Metrics go to the outbox from the first evaluation on, so that the run's page in MLflow begins
    with the accuracy, and when training is interrupted, too. A run that goes on from `start` may
    have logged less than was kept of it, or more: each metric gets each round once.
    """
    logged = frozenset() if start is None else _logged(outbox.run_id)
    done = 0 if start is None else start.state.round
    written, evaluated = clock(), start is not None

    def flush() -> None:
        nonlocal written
        outbox.take_up()
        written = clock()

    def log(round_: int, values: Mapping[str, float], prefix: str = "") -> None:
        now = int(time.time() * 1000)
        new = [name for name in values if (prefix + name, round_) not in logged]
        outbox.leave(Metric(prefix + name, values[name], now, round_) for name in new)

    def log_evaluation(record: RoundRecord) -> None:
        values = {k: v for k, v in record.row.items() if k != "round" and math.isfinite(v)}
        log(record.round, values)

    def on_round(round_: int, decisions: Mapping[str, float], seconds: float) -> None:
        bar.on_round(round_, decisions, seconds)
        log(round_, {WALL.name: seconds})
        log(round_, decisions, f"{group}/")
        if evaluated and clock() - written > _SECONDS_BETWEEN_WRITES:
            flush()

    def on_evaluation(record: RoundRecord) -> None:
        nonlocal evaluated
        bar.on_evaluation(record)
        log_evaluation(record)
        if not evaluated:
            evaluated = True
            flush()

    with progress_bar(rounds, done, tell=logger.info, clock=clock) as bar:
        if start is not None:
            for record in start.records:
                log_evaluation(record)
            for round_, decisions in enumerate(start.decisions, start=1):
                log(round_, decisions, f"{group}/")
        try:
            yield Listener(on_round, on_evaluation)
        finally:
            flush()


def _logged(run_id: str) -> frozenset[tuple[str, int]]:
    """The metrics of a run by name and step."""
    client = mlflow.MlflowClient()
    return frozenset(
        (name, metric.step)
        for name in client.get_run(run_id).data.metrics
        for metric in client.get_metric_history(run_id, name)
    )


def train_model(
    experiment: Experiment, checkpoints: Path, begin_run: Callable[[], Outbox]
) -> tuple[dict[str, Any], Mapping[str, Tensor], pd.DataFrame]:
    """The configuration that a model is of, its state dict, and the metrics of every evaluated
    round. Where devices hold records out, the last round has a score, which is drawn here once.

    The split's verdict is waited for before the first file: a checkpoint, or what is returned.
    """
    rounds = experiment.calibrate().affordable_rounds
    config = experiment.config
    with sites_of(config.execution, available_cores(config.threads)) as sites:
        # What this refuses leaves the checkpoints as they are.
        process = experiment.process(sites=sites)
        outbox = begin_run()
        group = "control" if experiment.course is None else "tiers"
        if (accumulated := experiment.accumulated_noise) is not None:
            group, step = "schedule", experiment.schedule.learning_rate
            logger.info(as_noise_allows(config, accumulated, step))
        reached = _reached(checkpoints, experiment) if config.resume else None
        start = None if reached is None else reached.progress
        # Beside that of the model which it will replace, if that has the same noise.
        private, rests_on = experiment.calibrate().mechanism.private, experiment.conditions()
        verdict = Verdict(run_digest(config), experiment.trained_on, private, tuple(rests_on))
        verdict = verdict.joined(kept(checkpoints.parent))
        checkpointing = _begin(checkpoints, experiment, reached, verdict, outbox.run_id)
        with tracked_progress(rounds, start, outbox, group=group) as listener:
            trained = experiment.train(listener, start, checkpointing, process)
    settle()
    keep_verdict(checkpoints.parent, verdict)
    if trained.warning is not None:
        logger.warning(trained.warning)
    metrics, score = trained.metrics, experiment.score(trained.state_dict)
    if score is not None:
        is_last = metrics.index == metrics.index[-1]
        metrics = metrics.assign(**{SCORE.name: np.where(is_last, score, np.nan)})
    return essentials(config), trained.state_dict, metrics


def package_model(
    experiment: Experiment,
    state_dict: Mapping[str, Tensor],
    round_metrics: pd.DataFrame,
    promised: Mapping[str, Any],
) -> ServableModel:
    """The trained model with its privacy, for whoever loads it from MLflow. Epsilon covers all of
    it; its accuracy, of records in clear, is no part of it."""
    config = experiment.config
    promises = (*EPSILON_NAMES.values(), "epsilon_nominal", "delta", "unit", "adjacency")
    metadata = {
        "privacy": promised["guarantee"],
        **{name: promised[name] for name in promises if name in promised},
        "distrusted": ", ".join(promised.get("distrusted", ())),
        "rounds": int(round_metrics["round"].iloc[-1]),
        "algorithm": config.algorithm,
        "model": config.model.name,
        "dataset": config.dataset.name,
        "input": "pixels in [0, 1]",
    }
    shape, n_classes = experiment.classified
    rows = RowMap.of(experiment.dataset, config.dataset.scale)
    if rows is not None:
        metadata["input"] = "rows of a table"
    features = None if config.features.map == PIXELS else config.features
    shape = shape if features is None else experiment.dataset.shape
    return ServableModel(config.model, shape, n_classes, state_dict, metadata, rows, features)


def _reached(folder: Path, experiment: Experiment) -> Checkpoint:
    """What the run goes on from; refused where there is none any more, or records or noise are not
    as they were."""
    settle()
    checkpoint, unreadable = load_latest(folder)
    if checkpoint is None:
        raise refusal(f"the checkpoints in {folder} are gone")
    if checkpoint.trained_on != experiment.trained_on:
        raise refusal(
            "the records are not those that the run began with: under noise that repeats, a "
            "round that is trained again would tell the difference; leave it out"
        )
    if checkpoint.noised_with != experiment.noised_with:
        raise refusal(
            "noise is calibrated otherwise than where the run began, and the ledger would count "
            "all rounds by today's; go on with the versions that it began with, or leave it out "
            "and give another seed: of this one noise is released already"
        )
    for path in unreadable:
        path.unlink()
    return checkpoint


def _begin(
    folder: Path, experiment: Experiment, reached: Checkpoint | None, verdict: Verdict, run_id: str
) -> Checkpointing | None:
    """Where checkpoints go, if any are kept.

    `folder` holds checkpoints of this run only from here on; a split that is refused leaves those
    of the run before.
    """
    config, here = experiment.config, computed_by(experiment.config)
    computed: tuple[Mapping[str, str], ...] = (here,)
    code: Mapping[str, str] = {}
    if reached is None:
        if any(folder.glob("*.ckpt")):
            settle()
        clear(folder)
    else:
        keep_verdict(folder.parent, verdict)
        computed, code = tuple(reached.computed_by), reached.own_code
        if computed[-1:] != (here,):
            computed = (*computed, here)
            # Were this process stopped before its first checkpoint, nobody would know of its
            # rounds.
            save(folder, replace(reached, computed_by=computed), kept=1)
    every = config.training.checkpoint_every
    if every is None:
        return None
    plain, code = essentials(config), own_code(config, code)

    def keep(progress: Progress) -> None:
        nonlocal code
        settle()
        keep_verdict(folder.parent, verdict)
        code = own_code(config, code)
        alike = experiment.trained_on, experiment.noised_with, computed
        save(folder, Checkpoint(progress, run_id, plain, *alike, code))

    return Checkpointing(every, keep)


def create_pipeline() -> Pipeline:
    """Experiment to model, round metrics and what made them."""
    given = ["prepared_experiment", "checkpoints", "begin_run"]
    trained = ["prepared_experiment", "model", "round_metrics", "privacy_summary"]
    model = ["model_configuration", "model", "round_metrics"]
    return Pipeline(
        [node(train_model, given, model), node(package_model, trained, "servable_model")]
    )
