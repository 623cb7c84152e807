"""Checkpoints of a run: where training goes on after the process has been stopped.

Draws are keyed by round, and the ledger and the plan follow from the configuration. So a checkpoint
keeps what training has reached (`Progress`) and which run that is.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.process import Slots, State
from m2fdp.core.engine.rules import Named
from m2fdp.core.engine.training import Progress, RoundRecord
from m2fdp.core.files import replacing, sealed, unsealed

KEPT = 2  # the newest, and the one before, in case the newest is damaged


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a run has reached, and which run that is.

    Attributes:
        run: identity of the run for its owner.
        configuration: plain values of all keys that the results depend on, by dotted key.
        trained_on: digest of the records, or empty.
        noised_with: digest of the deviations of all noise, or empty.
        computed_by: hardware and versions that decide the rounding, of each process in turn that
            has trained rounds and differs from the one before.
        own_code: digests of the files of the user's own modules, by module; empty without a file.
    """

    progress: Progress
    run: str
    configuration: Mapping[str, Any]
    trained_on: str = ""
    noised_with: str = ""
    computed_by: Sequence[Mapping[str, str]] = ()
    own_code: Mapping[str, str] = field(default_factory=dict)


def save(folder: Path, checkpoint: Checkpoint, kept: int = KEPT) -> None:
    """Write `<folder>/round-<t>.ckpt` in one step; keep so many of the newest, and no later one."""
    progress, state, buffer = checkpoint.progress, checkpoint.progress.state, io.BytesIO()
    torch.save(
        {
            "run": checkpoint.run,
            "configuration": dict(checkpoint.configuration),
            "trained_on": checkpoint.trained_on,
            "noised_with": checkpoint.noised_with,
            "computed_by": [dict(each) for each in checkpoint.computed_by],
            "own_code": dict(checkpoint.own_code),
            "round": state.round,
            "weights": _whole(state.weights),
            "slots": _all_whole(state.slots.server),
            "device_slots": _all_whole(state.slots.device),
            "records": [_plain(asdict(record)) for record in progress.records],
            "decisions": [_plain(decisions) for decisions in progress.decisions],
            "course_state": _all_whole(progress.course_state),
        },
        buffer,
    )
    path = folder / f"round-{state.round:08d}.ckpt"
    with replacing(path) as unfinished:
        unfinished.write_bytes(sealed(buffer.getvalue()))
    earlier = [other for other in _files(folder) if other.name < path.name]
    clear(folder, but=(path, *earlier[: kept - 1]))


def load_latest(folder: Path) -> tuple[Checkpoint | None, list[Path]]:
    """The newest checkpoint that can be read, or None, and the newer files that can't."""
    unreadable: list[Path] = []
    for path in _files(folder):
        checkpoint = _load(path)
        if checkpoint is not None:
            return checkpoint, unreadable
        unreadable.append(path)
    return None, unreadable


def clear(folder: Path, but: Sequence[Path] = ()) -> None:
    """Remove all checkpoints but some, and the hidden ones that a killed process leaves."""
    for path in [*_files(folder), *folder.glob(".*.ckpt")]:
        if path not in but:
            path.unlink(missing_ok=True)


def differences(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, tuple[object, object]]:
    """The keys in which two configurations differ, with both values; None for a missing one."""
    return {
        key: (one.get(key), other.get(key))
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    }


def _load(path: Path) -> Checkpoint | None:
    content = unsealed(path.read_bytes())
    if content is None:
        return None
    fields = torch.load(io.BytesIO(content), weights_only=True)
    try:
        records = tuple(RoundRecord(**record) for record in fields["records"])
        slots = Slots(fields["slots"], fields.get("device_slots", {}))
        state = State(fields["round"], fields["weights"], slots)
        decisions = tuple(fields["decisions"])
        progress = Progress(state, records, decisions, fields["course_state"])
        digests = fields["trained_on"], fields["noised_with"]
        computed_by = tuple(fields["computed_by"])
        own_code = fields.get("own_code", {})  # 0.19 kept none
        return Checkpoint(
            progress, fields["run"], fields["configuration"], *digests, computed_by, own_code
        )
    except (KeyError, TypeError):  # of a version with other fields
        return None


def _whole(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()  # a clone of a view holds its own elements only


def _all_whole(tensors: Named) -> dict[str, Tensor]:
    return {name: _whole(tensor) for name, tensor in tensors.items()}


def _plain(row: Mapping[str, float]) -> dict[str, int | float]:
    """A row without NumPy's scalars, which torch loads from trusted files only."""
    return {key: of.item() if isinstance(of, np.generic) else of for key, of in row.items()}


def _files(folder: Path) -> list[Path]:
    """The newest first."""
    return sorted(folder.glob("round-*.ckpt"), reverse=True)
