"""Where training starts, and how it keeps what it reaches."""

from __future__ import annotations

from pathlib import Path

import mlflow

from m2fdp.config import Config, essentials
from m2fdp.errors import InputError
from m2fdp.simulation.checkpoints import Checkpoint, clear, load_latest, save
from m2fdp.simulation.training import Checkpointing, Progress


def begin(folder: Path, config: Config) -> tuple[Progress | None, Checkpointing | None]:
    """What has been reached before, if the run goes on; and where checkpoints go, if any are kept.

    `folder` holds checkpoints of this run only from here on.
    """
    start = None
    if config.resume:
        checkpoint, unreadable = load_latest(folder)
        for path in unreadable:
            path.unlink()
        if checkpoint is None:
            raise InputError("resume", True, f"the checkpoints in {folder} are gone")
        start = checkpoint.progress
    else:
        clear(folder)
    run = mlflow.active_run()
    every = config.training.checkpoint_every
    if run is None or every is None:
        return start, None
    run_id, plain = run.info.run_id, essentials(config)
    return start, Checkpointing(
        every, lambda progress: save(folder, Checkpoint(progress, run_id, plain))
    )
