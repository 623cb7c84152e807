"""`python -m benchmarks.secure_sums`: what the protocol of secure aggregation takes, all parties
played in turn on one core."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from m2fdp.secure_aggregation.messages import (
    Mailbox,
    MaskedVector,
    Message,
    PublicKeys,
    Roster,
    SealedShares,
    UnmaskRequest,
    UnmaskShares,
)
from m2fdp.secure_aggregation.protocol import Tap, secure_sum
from m2fdp.secure_aggregation.terms import Group, Input, Scale, Stage, Terms

ID_BYTES = 4  # of a member's number in a message
N_PARAMETERS = 7840  # `cnn12`, and 784 -> 10 without bias


@dataclass(frozen=True)
class Setting:
    """Groups whose sums are formed one after the other.

    Attributes:
        name: in the table.
        groups: of how many members each; thresholds are floor(2n/3) + 1.
        n_parameters: M.
        silent: members of each group that fall silent before their vector.
    """

    name: str
    groups: tuple[int, ...]
    n_parameters: int = N_PARAMETERS
    silent: int = 0


SETTINGS = (
    Setting("5", (5,)),
    Setting("10, one falls silent", (10,), silent=1),
    Setting("10, M = 100,000", (10,), 100_000),
    Setting("50", (50,)),
    Setting("50, 5 fall silent", (50,), silent=5),
    Setting("10 zones of 5, and their 10 servers", (*(5,) * 10, 10)),
    Setting("100", (100,)),
    Setting("10 zones of 10, and their 10 servers", (*(10,) * 10, 10)),
)


Rounds = list[tuple[Terms, list[Input]]]


def prepare(setting: Setting) -> Rounds:
    """The round of every group and what its members put in."""
    rng = np.random.default_rng(0)
    rounds = []
    for number, n in enumerate(setting.groups):
        group = Group(f"group {number}", n, 2 * n // 3 + 1)
        terms = Terms(group, Scale(1.0, 0.1), setting.n_parameters, "benchmark")
        vectors = rng.normal(size=(n, setting.n_parameters))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) * 1.01
        noise = np.clip(rng.normal(size=vectors.shape), -7, 7) * 0.1
        inputs = [Input(*pair) for pair in zip(vectors, noise, strict=True)]
        rounds.append((terms, inputs))
    return rounds


def play(setting: Setting, rounds: Rounds, tap: Tap = lambda message: None) -> None:
    """One round of every group."""
    silent = dict.fromkeys(range(setting.silent), Stage.VECTOR)
    for terms, inputs in rounds:
        secure_sum(terms, inputs, silent, tap=tap)


def size(message: Message) -> int:
    """Bytes of a message, with those of each member's number in it; the transport's own headers do
    not count."""
    match message:
        case PublicKeys():
            return len(message.sealing) + len(message.masking)
        case Roster():
            return sum(ID_BYTES + size(keys) for keys in message.keys)
        case SealedShares() | Mailbox():
            return sum(ID_BYTES + len(sealed) for _, sealed in message.parcels)
        case MaskedVector():
            return message.words.nbytes
        case UnmaskRequest():
            return ID_BYTES * (len(message.survivors) + len(message.silent))
        case UnmaskShares():
            held = (*message.own_masks.values(), *message.masking_keys.values())
            return sum(ID_BYTES + len(share) for share in held)


def recipients(message: Message) -> int:
    """To how many it goes."""
    if isinstance(message, Roster):
        return len(message.keys)
    return len(message.survivors) if isinstance(message, UnmaskRequest) else 1


def measure(setting: Setting, repetitions: int) -> tuple[list[float], int, int]:
    """Milliseconds of a round, sorted, of which the first time does not count; bytes of masked
    vectors, and of all else."""
    rounds, heard = prepare(setting), list[Message]()
    play(setting, rounds, heard.append)
    masked = sum(size(one) for one in heard if isinstance(one, MaskedVector))
    others = sum(recipients(one) * size(one) for one in heard) - masked
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        play(setting, rounds)
        times.append(1000 * (time.perf_counter() - start))
    return sorted(times), masked, others


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args(arguments).rounds
    print("| members | ms, median | least | MB of masked vectors | MB of all else |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for setting in SETTINGS:
        times, masked, others = measure(setting, rounds)
        print(
            f"| {setting.name} | {median(times):.0f} | {times[0]:.0f} | {masked / 1e6:.2f} "
            f"| {others / 1e6:.2f} |"
        )


if __name__ == "__main__":
    main()
