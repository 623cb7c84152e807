"""Checkpoints of a run: where training goes on after the process has been stopped.

A run's random draws are keyed by round, and its
privacy ledger and its plan follow from the configuration. So the state after the last finished
round, the rows measured and decided so far, and what decides the rounds has seen are all there is
to keep.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.process import Named, Slots, State
from m2fdp.core.engine.training import Progress, RoundRecord
from m2fdp.core.files import replacing, sealed, unsealed

# Should the newest turn out to be damaged, there is the one before.
KEPT = 2


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a run has reached, and which run that is.

    Attributes:
        run: whatever tells its owner the run; not interpreted here.
        configuration: everything that the results depend on, by dotted key; plain values.
        trained_on: a digest of the records; empty where whoever keeps it has none.
        noised_with: a digest of how much noise goes where; empty as above.
        computed_by: what decides how sums are rounded, of each process in turn that has trained
            rounds; one that is like the one before is left out.
        own_code: digests of the files of the user's own modules, by module; empty where a module
            has no file that can be read.
    """

    progress: Progress
    run: str
    configuration: Mapping[str, Any]
    trained_on: str = ""
    noised_with: str = ""
    computed_by: Sequence[Mapping[str, str]] = ()
    own_code: Mapping[str, str] = field(default_factory=dict)


def save(folder: Path, checkpoint: Checkpoint, kept: int = KEPT) -> None:
    """Write `<folder>/round-<t>.ckpt` in one step, and keep only it and the one before.

    Checkpoints of later rounds go too: they are left over from what this run replaces.

    Args:
        kept: how many are, this one among them.
    """
    progress = checkpoint.progress
    state = progress.state
    buffer = io.BytesIO()
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
    _remove(folder, keep=[path, *earlier[: kept - 1]])


def load_latest(folder: Path) -> tuple[Checkpoint | None, list[Path]]:
    """The newest checkpoint that can be read, or None, and the newer files that can't."""
    unreadable: list[Path] = []
    for path in _files(folder):
        checkpoint = _load(path)
        if checkpoint is not None:
            return checkpoint, unreadable
        unreadable.append(path)
    return None, unreadable


def clear(folder: Path) -> None:
    """Remove all checkpoints."""
    _remove(folder, keep=[])


def differences(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, tuple[object, object]]:
    """The keys in which two configurations differ, with both values; None where there is none."""
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
        return Checkpoint(
            progress,
            fields["run"],
            fields["configuration"],
            fields["trained_on"],
            fields["noised_with"],
            tuple(fields["computed_by"]),
            fields.get("own_code", {}),  # of 0.19, which kept none
        )
    except (KeyError, TypeError):  # of a version with other fields
        return None


def _whole(tensor: Tensor) -> Tensor:
    """On the CPU. A clone holds its own elements only, also where the tensor is a view."""
    return tensor.detach().cpu().clone()


def _all_whole(tensors: Named) -> dict[str, Tensor]:
    return {name: _whole(tensor) for name, tensor in tensors.items()}


def _plain(row: Mapping[str, float]) -> dict[str, int | float]:
    """A row without NumPy's scalars, which torch does not load without trust in the file."""
    return {
        key: value.item() if isinstance(value, np.generic) else value for key, value in row.items()
    }


def _files(folder: Path) -> list[Path]:
    """The newest first."""
    return sorted(folder.glob("round-*.ckpt"), reverse=True)


def _remove(folder: Path, keep: list[Path]) -> None:
    # The hidden ones were being written when their process was killed.
    for path in [*_files(folder), *folder.glob(".*.ckpt")]:
        if path not in keep:
            path.unlink(missing_ok=True)
