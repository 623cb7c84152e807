"""The ledger as tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from m2fdp.privacy.ledger import AlikeRounds, Ledger
from m2fdp.privacy.positions import position_name
from m2fdp.privacy.releases import Release


def ledger_table(ledger: Ledger, rounds: int, conditions: Sequence[str] = ()) -> pd.DataFrame:
    """One row a line: who sees what of whom, how often, behind how much noise, and epsilon.

    `largest_shift` and `noise` share the unit that the mechanism's releases have. Where rounds
    differ in who takes part, they are those of the release whose shift is largest over its noise.

    Args:
        conditions: what every line rests on besides its own assumption.
    """
    rows = []
    for line in ledger.lines:
        position = line.position
        releases = 0
        worst = (0.0, 0.0, line.deviation * position.unit)
        shown = list(ledger.released(line, rounds))
        for alike in shown:
            seen_from, noise = line.views[alike.plan.network]
            for law, count in alike.laws:
                releases += count * alike.times
                shift = law.largest * seen_from.unit
                ratio = law.largest / noise if noise else law.largest
                worst = max(worst, (ratio, shift, noise * seen_from.unit))
        _, largest_shift, noise = worst
        rows.append(
            {
                "position": position_name(position),
                "devices": len(position.members),
                "observer": line.observer,
                "kind": line.kind,
                "distrusted": line.kind in ledger.distrusted,
                "sees": line.sees,
                "releases": releases,
                "sampling_rate": position.sampling_rate * _chance(line, shown),
                "largest_shift": largest_shift,
                "noise": noise,
                "epsilon": ledger.epsilon(line, rounds),
                "delta": ledger.delta,
                "adjacency": ledger.adjacency,
                "assumption": "; ".join(
                    [line.assumption, *_who_joins(line, shown, rounds), *conditions]
                ).removeprefix("–; "),
            }
        )
    return pd.DataFrame(rows)


def _chance(line: Release, shown: Sequence[AlikeRounds]) -> float:
    """With which the device of a record joins a round, where that hides it."""
    joins = line.position.joins
    unseen = joins is not None and any(alike.joins_unseen for alike in shown)
    return joins if joins is not None and unseen else 1.0


def _who_joins(line: Release, shown: Sequence[AlikeRounds], rounds: int) -> list[str]:
    """What the observer knows of who joins, where that is left to chance."""
    joins = line.position.joins
    if joins is None:
        return []
    if any(alike.joins_unseen for alike in shown):
        return [f"never told who joins a round, each with chance {joins:.3g}"]
    times = sum(alike.times for alike in shown)
    return [
        f"as if told who joins a round: counted are {times} of {rounds}, the most of any of these "
        f"devices; {joins * rounds:.3g} are expected"
    ]


def epsilon_over_rounds(ledger: Ledger, rounds: int) -> pd.DataFrame:
    """Epsilon of every kind of observer after up to 12 numbers of rounds, a row each.

    Columns: round, then one a kind.
    """
    chosen = np.unique(np.geomspace(1, rounds, 12).round().astype(int))
    return pd.DataFrame([{"round": int(t), **ledger.by_kind(int(t))} for t in chosen])
