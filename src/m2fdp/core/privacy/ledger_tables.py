"""The ledger as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import nan

import numpy as np
import pandas as pd

from m2fdp.core.formatting import counted
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.positions import position_name
from m2fdp.core.privacy.releases import AlikeRounds, Release
from m2fdp.core.topology.network import Network
from m2fdp.zones.lots import Exposure
from m2fdp.zones.offices import Offices


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
        rounds_shown = list(ledger.released(line, rounds))
        for same_rounds in rounds_shown:
            seen_from, noise = line.views[same_rounds.plan.network][0], same_rounds.deviation
            for law, count in same_rounds.laws:
                releases += count * same_rounds.times
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
                "sampling_rate": position.sampling_rate * _chance(line, rounds_shown),
                "largest_shift": largest_shift,
                "noise": noise,
                "epsilon": ledger.epsilon(line, rounds),
                "delta": ledger.delta,
                "adjacency": ledger.adjacency,
                "assumption": "; ".join(
                    [
                        line.assumption,
                        *_who_serves(line, ledger, rounds),
                        *_who_joins(line, rounds_shown, rounds),
                        *conditions,
                    ]
                ).removeprefix("–; "),
            }
        )
    return pd.DataFrame(rows)


def _chance(line: Release, rounds_shown: Sequence[AlikeRounds]) -> float:
    """With which the device of a record joins a round, where that hides it."""
    joins = line.position.joins
    unseen = joins is not None and any(same_rounds.joins_unseen for same_rounds in rounds_shown)
    return joins if joins is not None and unseen else 1.0


def _who_serves(line: Release, ledger: Ledger, rounds: int) -> list[str]:
    """How often an elected super-node serves."""
    if not line.by_turns:
        return []
    if ledger.offices is None:
        return ["as if it served in every round: nobody knows who will be elected"]
    others = ledger.offices.coalition
    most_served = ledger.offices.exposure(tuple(range(rounds))).under_coalition
    return [
        f"serving in {most_served[list(line.position.members)].max()} of "
        f"{counted(rounds, 'round')}, the most that any "
        f"{'other' if others == 1 else f'{others} others'} did while one of these devices took part"
    ]


def _who_joins(line: Release, rounds_shown: Sequence[AlikeRounds], rounds: int) -> list[str]:
    """What the observer knows of who joins, where that is left to chance."""
    joins = line.position.joins
    if joins is None or line.by_turns:
        return []
    known = sum(alike.times for alike in rounds_shown if not alike.joins_unseen)
    if any(same_rounds.joins_unseen for same_rounds in rounds_shown):
        serving = f", but who serves: {known} of {rounds}, the most of any of these devices"
        told = f"never told who joins a round, each with chance {joins:.3g}"
        return [told + serving * bool(known)]
    return [
        f"as if told who joins a round: counted are {known} of {rounds}, the most of any of these "
        f"devices; {joins * rounds:.3g} are expected"
    ]


def elections_table(network: Network, offices: Offices | None, rounds: int) -> pd.DataFrame:
    """One row a device: in how many rounds it took part, served as its zone's super-node, and was
    served by the worst other, or the worst others who collude; no row where nobody is elected.

    Columns: zone, device, present, served, under_one_other, under_coalition. Where nobody knows who
    will be elected, the first two counts are empty, and the others are all
    rounds.
    """
    names = [field.name for field in fields(Exposure)]
    if not network.elected:
        return pd.DataFrame(columns=["zone", "device", "present", *names])
    tree = network.tree
    zones = [tree.names[-2][zone] for zone in tree.parents[-1]]
    table = pd.DataFrame({"zone": zones, "device": tree.names[-1]})
    if offices is None:
        no_counts = {"present": nan, "served": nan}
        return table.assign(**no_counts, under_one_other=rounds, under_coalition=rounds)
    exposure = offices.exposure(tuple(range(rounds)))
    counts = {name: getattr(exposure, name) for name in names}
    return table.assign(present=offices.present[:rounds].sum(axis=0), **counts)


def epsilon_over_rounds(ledger: Ledger, rounds: int) -> pd.DataFrame:
    """Epsilon of every kind of observer after up to 12 numbers of rounds, a row each.

    Columns: round, then one a kind.
    """
    chosen = np.unique(np.geomspace(1, rounds, 12).round().astype(int))
    return pd.DataFrame([{"round": int(t), **ledger.by_kind(int(t))} for t in chosen])
