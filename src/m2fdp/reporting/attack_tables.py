"""An attack in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from m2fdp.core.formatting import lower_bound, promised_epsilon, upper_bound
from m2fdp.reporting.attack_figures import counted, share
from m2fdp.reporting.terminal import new_table, show

_OF_MESSAGES = ("images", "PSNR", "blind", "SSIM", "labels", "ε at most")
_FOUND = ("AUC", "at most", "found at 1 %", "at most", "found at 0.1 %", "at most")
_OF_MEMBERS = (*_FOUND, "ε at least", "ε at most")


def print_attack(record: Mapping[str, Any], console: Console | None = None) -> None:
    """What was taken, with epsilon beside every number, and what it does not show.

    Args:
        record: the record of an `m2fdp.adversaries.attacks.Attacked`.
    """
    who = ", ".join(record["observers"].values())
    bound = upper_bound(promised_epsilon(record))
    title = f"{record['method']} by {who}; the run's {record['guarantee']} ε is {bound}"
    if "memberships" in record:
        result = new_table(title, ["observer"], _OF_MEMBERS, record["note"])
        _fill_memberships(result, record)
    else:
        result = new_table(title, ["message"], _OF_MESSAGES, record["note"])
        _fill_messages(result, record)
    show(result, console)


def _fill_messages(result: Table, record: Mapping[str, Any]) -> None:
    result.columns[0].min_width = 24
    for message in record["messages"]:
        result.add_row(
            Text(f"{message['sees']} of {counted(message)}"),
            str(message["images"]),
            f"{message['psnr']:.1f}",
            f"{message['psnr_blind']:.1f}",
            f"{message['ssim']:.3f}",
            share(message["labels_right"]),
            upper_bound(float(message["epsilon"])),
        )


def _fill_memberships(result: Table, record: Mapping[str, Any]) -> None:
    for row in record["memberships"]:
        result.add_row(
            Text(record["observers"][row["observer"]]),
            f"{row['auc']:.3f}",
            upper_bound(row["auc_most"]),
            f"{row['tpr_at_0.01']:.4f}",
            upper_bound(row["tpr_most_at_0.01"]),
            f"{row['tpr_at_0.001']:.4f}",
            upper_bound(row["tpr_most_at_0.001"]),
            lower_bound(row["epsilon_lower"]),
            upper_bound(float(row["epsilon"])),
        )
