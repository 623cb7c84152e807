"""How operators compute, for the whole process."""

import os
import sys

import torch


def set_exact_arithmetic() -> None:
    """One thread an operator, and float32 products in float32.

    Processes share the steps instead of threads (`m2fdp.processes.workers`). TF32, a GPU's
    shortcut for products and convolutions, would round the sums that noise is calibrated for. Of
    its ways to convolve, only those count that repeat their own results.
    """
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True


def available_cores(at_most: int | None = None) -> int:
    """The cores that this process may use, or so many of them."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(there or 1, at_most or sys.maxsize)
