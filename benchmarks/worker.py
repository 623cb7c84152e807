"""The process of one contender: it takes its turns by commands on standard input.

`python -m benchmarks.worker '{"work": …, "contender": …, "threads": …, "device": …}'` answers
one line of JSON to its start, to every `round` and to `finish`; it ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from benchmarks.contenders import OURS, Round, prepare
from benchmarks.works import Work, build_data, build_work_model, work_from_json

# Of more devices a profile takes many rounds' time, and shows the same operators.
_PROFILED = 20_000


def main() -> None:
    specification = json.loads(sys.argv[1])
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    work, device = work_from_json(specification["work"]), specification["device"]
    torch.set_num_threads(specification["threads"])
    round_ = prepare(specification["contender"], work, specification["threads"], device)
    answer(ready=True)
    weights = None
    for command in sys.stdin:
        if command.strip() == "round":
            start = time.perf_counter()
            weights = round_()
            if device != "cpu":
                torch.cuda.synchronize()
            answer(ms=1000 * (time.perf_counter() - start))
        else:
            peak = peak_memory(device)
            ours = specification["contender"] == OURS
            answer(
                peak_mib=peak / 2**20,
                accuracy=None if weights is None else accuracy(work, weights.cpu()),
                weights=_saved(weights, specification["weights"]),
                profile=profile(round_) if ours and work.devices <= _PROFILED else None,
            )
    # Flower's threads would wait for another turn.
    os._exit(0)


def _saved(weights: Tensor | None, path: str) -> str | None:
    """The file that has the weights (M,) now."""
    if weights is not None:
        np.save(path, weights.detach().cpu().numpy())
    return None if weights is None else path


def peak_memory(device: str) -> int:
    """Bytes: the peak resident sizes of this process and its descendants, summed, but for what they
    share: of files' pages and of shared memory the most that one of them has counts, once.

    On a GPU the peak of torch's allocator is added.
    """
    this = psutil.Process()
    family = [this, *this.children(recursive=True)]
    on_device = 0 if device == "cpu" else torch.cuda.max_memory_allocated()
    peaks, files, memory = zip(*(_sizes(process.pid) for process in family), strict=True)
    twice = sum(files) - max(files) + sum(memory) - max(memory)
    return sum(peaks) - twice + on_device


def _sizes(pid: int) -> tuple[int, int, int]:
    """Bytes: a process's peak resident size, and what it has now of files and of shared memory."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:  # it ended meanwhile
        status = ""
    lines = dict(line.split(":", 1) for line in status.splitlines())
    peak, files, shared = (
        int(lines.get(name, "0 kB").split()[0]) * 1024 for name in ("VmHWM", "RssFile", "RssShmem")
    )
    return peak, files, shared


@torch.no_grad()
def accuracy(work: Work, weights: Tensor) -> float:
    """The share of the test records that the global weights (M,) classify rightly."""
    data, module = build_data(work), build_work_model(work).module
    vector_to_parameters(weights, module.parameters())
    predicted = module(data.test_features).argmax(dim=1)
    return float((predicted == data.test_labels).double().mean())


def profile(round_: Round) -> str:
    """One more round: the torch operators by their own time on the CPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        round_()
        wall = time.perf_counter() - start
    averages = sorted(profiler.key_averages(), key=lambda event: -event.self_cpu_time_total)
    inside = sum(event.self_cpu_time_total for event in averages) / 1e6
    lines = [f"{'operator':32}{'calls':>8}{'ms':>9}"]
    lines += [
        f"{event.key[:31]:32}{event.count:8}{event.self_cpu_time_total / 1000:9.2f}"
        for event in averages[:10]
    ]
    lines.append(f"all operators {1000 * inside:.1f} ms of {1000 * wall:.1f} ms, profiler on")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
