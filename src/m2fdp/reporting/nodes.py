"""What real nodes say of themselves, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_statuses(found: Sequence[Mapping[str, Any]]) -> None:
    """What `m2fdp.deployment.status.statuses` has found: a row a node, and below it one a child."""
    table = Table("node", "is", "since", "round", "epsilon", "days", "last refusal")
    for each in found:
        parent, doing = each["parent"], {"works": "at work", "waits": "ready"}[each["doing"]]
        doing = doing if parent is None or parent["there"] else f"waits for {parent['name']}"
        doing = each["overdue"] or doing if each["runs"] else "does not run"
        spent = "" if each["budget"] is None else f"{each['epsilon']:.4g} of {each['budget']:g}"
        at = f"{each['round'] or 0} of {each['rounds']}"
        first = (each["node"], "over" if each["ended"] else doing, each["since"], at, spent)
        rows = [(*first, each, each["last_refusal"])]
        for name, child in each["children"].items() if each["runs"] else ():
            there = "there" if child["there"] else "not there"
            rows.append((f"  {name}", there, child["since"], "", "", child, child["refusal"]))
        for name, is_, since, of, epsilon, about, refusal in rows:
            days = "" if (left := about["certificate_days"]) is None else f"{left:.0f}"
            words = refusal["text"] if refusal else ""
            since = (since or "")[5:16].replace("T", " ")
            table.add_row(*map(escape, (name, is_, since, of, epsilon, days, words)))
    Console().print(table)
