"""The ledger as tables."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.positions import position_name


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
        rounds_shown = ledger.released(line, rounds)
        for same_rounds in rounds_shown:
            seen_from, noise = line.views[same_rounds.plan.network][0], same_rounds.deviation
            for law, count in same_rounds.laws:
                releases += count * same_rounds.times
                shift = law.largest * seen_from.unit
                ratio = law.largest / noise if noise else law.largest
                worst = max(worst, (ratio, shift, noise * seen_from.unit))
        _, largest_shift, noise = worst
        unseen = any(same_rounds.joins_unseen for same_rounds in rounds_shown)
        chance = (position.joins or 1.0) if unseen else 1.0
        words = line.account.words(line, rounds_shown, ledger.past(rounds))
        rows.append(
            {
                "position": position_name(position),
                "devices": len(position.members),
                "observer": line.observer,
                "kind": line.kind,
                "distrusted": line.kind in ledger.distrusted,
                "sees": line.sees,
                "releases": releases,
                "sampling_rate": position.sampling_rate * chance,
                "largest_shift": largest_shift,
                "noise": noise,
                "epsilon": ledger.epsilon(line, rounds),
                "delta": ledger.delta,
                "adjacency": ledger.adjacency,
                "assumption": "; ".join([line.assumption, *words, *conditions]).removeprefix("–; "),
            }
        )
    return pd.DataFrame(rows)


def epsilon_over_rounds(ledger: Ledger, rounds: int) -> pd.DataFrame:
    """Epsilon of every kind of observer after up to 12 numbers of rounds, a row each.

    Columns: round, then one a kind.
    """
    chosen = np.unique(np.geomspace(1, rounds, 12).round().astype(int))
    return pd.DataFrame([{"round": int(t), **ledger.by_kind(int(t))} for t in chosen])
