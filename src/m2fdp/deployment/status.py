"""What an operator sees of a node: lines, each with what it is about, and `status.json` in its
state, which is there while the node runs and after. Nothing in it is secret."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any, Self

from cryptography import x509

from m2fdp.core.errors import InputError
from m2fdp.core.files import shown

if TYPE_CHECKING:
    from m2fdp.deployment.node_plan import NodePlan

FILE = "status.json"
# Days before its end that a certificate is told of; how often it is looked at, seconds.
_WARNING_DAYS, _DAY = 30, 86_400.0
# Seconds between two looks at whether there is something to write, and between writes at most.
_TICK_S, _WRITTEN_S = 1.0, 10.0
# Refusals are counted by so many kinds, of so many letters: other nodes word them.
_KINDS, _LETTERS = 20, 80
# What a process that is started again goes on with, of the same plan.
_LASTING = ("round", "epsilon", "budget", "last_refusal")
# Facts that are taken as they are; and what is known of a child that has not come.
_SAID = ("round", "epsilon", "budget", "plan", "rounds")
_ABSENT = {"there": False, "since": None, "certificate_ends": None, "refusal": None}
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Line(str):
    """A line for an operator, maybe empty, and what it is about: an event, facts by name."""

    event: str
    level: str
    facts: Mapping[str, Any]

    def __new__(cls, text: str, event: str = "note", level: str = "info", **facts: Any) -> Self:
        line = super().__new__(cls, text)
        line.event, line.level, line.facts = event, level, facts
        return line


def as_json(name: str, echo: Callable[[str], object]) -> Callable[[str], None]:
    """What prints a node's lines, each as a JSON object."""

    def tell(text: str) -> None:
        line = text if isinstance(text, Line) else Line(text)
        said = {"time": _now(), "level": line.level, "node": name, "round": line.facts.get("round")}
        echo(json.dumps(said | {"event": line.event, "text": str(line)}, ensure_ascii=False))

    return tell


class Status:
    """What is known of a node at this moment. `content` is plain JSON.

    Args:
        folder: that of the node's state.
        certificates: files of its own and the authority's, which may be replaced while it runs.
        deadline_s: seconds after which an answer, or a parent that is not there, is overdue.
        tell: whom lines are passed on to.
    """

    def __init__(
        self,
        folder: Path,
        node: NodePlan,
        certificates: Sequence[Path],
        deadline_s: float,
        tell: Callable[[str], object],
    ) -> None:
        self._file, self._certificates, self._tell = folder / FILE, certificates, tell
        self._lock, self._changed, self._looked, self._written = RLock(), True, -_DAY, 0.0
        before, plan, began = _read(self._file) or {}, node.plan.digest.hex()[:16], _now()
        self.content: dict[str, Any] = {
            "node": node.name,
            "plan": plan,
            "rounds": len(node.rounds),
            **{key: before.get(key) if before.get("plan") == plan else None for key in _LASTING},
            **{"started": began, "doing": "waits", "since": began, "deadline_s": deadline_s},
            "parent": node.parent and {"name": node.parent, "there": False, "since": began},
            "children": {child: dict(_ABSENT) for child in node.children},
            **{"rounds_done": 0, "seconds": 0.0, "refusals": {}, "handshakes_failed": 0},
            **{"certificate_ends": None, "ended": None},
        }

    def tell(self, text: str) -> None:
        """Take up what a line is about, and pass on what it says."""
        line = text if isinstance(text, Line) else Line(text)
        with self._lock:
            self._take(line, line.facts)
            self._changed, at = True, {"round": self.content["round"]}
        if line:
            self._tell(Line(line, line.event, line.level, **{**at, **line.facts}))

    def look(self) -> None:
        """Tell of a certificate that ends soon, once a day; write what has changed."""
        ticks = time.monotonic()
        if ticks - self._looked >= _DAY:
            self._looked = ticks
            with suppress(OSError, ValueError):  # one is being replaced
                ends = min(_end(file.read_bytes()) for file in self._certificates)
                self.content["certificate_ends"], left = ends, days_until(ends)
                if left < _WARNING_DAYS:
                    line = f"a certificate of this node ends in {max(left, 0):.0f} days, {ends}"
                    self.tell(Line(f"{line}; have a request signed anew", "certificate", "warning"))
        if self._changed or ticks - self._written >= _WRITTEN_S:
            with self._lock:
                self._changed, self._written = False, ticks
                text = json.dumps(self.content, ensure_ascii=False)
            # It waits for no disk: nothing that the node must remember is in it.
            unfinished = self._file.with_name(f".{FILE}")
            with suppress(OSError):  # a full disk is told of where it stops something
                unfinished.write_text(text, encoding="utf-8")
                os.replace(unfinished, self._file)

    def _take(self, line: Line, facts: Mapping[str, Any]) -> None:
        content, at = self.content, {"since": _now()}
        content |= {key: facts[key] for key in _SAID if key in facts}
        match line.event:
            case "works" | "waits":
                content |= {"doing": line.event, **at}
            case "round":
                content |= {"doing": "waits", **at}
                content["rounds_done"] += 1
                content["seconds"] += facts["seconds"]
            case "parent":
                content["parent"] |= {"there": facts["there"], **at}
            case "child":
                about = {"there": facts["there"], "certificate_ends": _end(facts["certificate"])}
                content["children"].setdefault(facts["child"], dict(_ABSENT)).update(about | at)
            case "plan":
                known = content["children"]
                content["children"] = {c: known.get(c, dict(_ABSENT)) for c in facts["children"]}
            case "strangers":
                content["handshakes_failed"] = max(facts["count"], 0)
            case "end":
                content["ended"] = str(line)
        if "reason" in facts:
            refusal = {"time": _now(), "text": facts["reason"]}
            content["last_refusal"] = refusal
            if facts.get("child") in content["children"]:
                content["children"][facts["child"]]["refusal"] = refusal
            counted = content["refusals"]
            kind = re.sub(r"[0-9][0-9.e]*", "N", facts["reason"])[:_LETTERS]
            kind = kind if kind in counted or len(counted) < _KINDS else "others"
            counted[kind] = counted.get(kind, 0) + 1


@contextmanager
def kept(status: Status) -> Iterator[None]:
    """Within the block it is written whenever it has changed, and else as a heartbeat."""
    over = Event()

    def keep() -> None:
        while not over.wait(_TICK_S):
            status.look()

    status.look()
    keeping = Thread(target=keep, daemon=True)
    keeping.start()
    try:
        yield
    finally:
        over.set()
        keeping.join()
        status.look()


def overdue(content: Mapping[str, Any]) -> str | None:
    """What of a node should have come by now, in words; None = nothing."""
    parent, deadline = content["parent"], content["deadline_s"]
    if content["ended"] is not None:
        return None
    if content["doing"] == "works" and (seconds := -_seconds_until(content["since"])) > deadline:
        return f"round {content['round']} has stood still for {seconds:.0f} s"
    if parent and not parent["there"] and (gone := -_seconds_until(parent["since"])) > deadline:
        return f"{parent['name']} has not been there for {gone:.0f} s"
    return None


def statuses(folder: Path) -> list[dict[str, Any]]:
    """What `status.json` says, of a node's state or of all in a folder; with whether the node runs,
    what is overdue, and how many days certificates have left.

    Raises:
        InputError: there is none.
    """
    own, found = folder / FILE, list[dict[str, Any]]()
    for file in [own] if own.exists() else sorted(folder.glob(f"*/{FILE}")):
        if (content := _read(file)) is not None:
            age = time.time() - file.stat().st_mtime
            runs = age < 3 * _WRITTEN_S and content["ended"] is None
            for each in (content, *content["children"].values()):
                ends = each["certificate_ends"]
                each["certificate_days"] = ends and round(days_until(ends), 1)
            found.append(content | {"runs": runs, "overdue": overdue(content) if runs else None})
    if not found:
        problem = "has no status.json; give the folder of a node's state, or of several"
        raise InputError("status", shown(folder), problem)
    return found


def days_until(time_: str) -> float:
    """From now to a moment of a status."""
    return _seconds_until(time_) / _DAY


def _seconds_until(time_: str) -> float:
    return (datetime.fromisoformat(time_) - datetime.now(UTC)).total_seconds()


def _now() -> str:
    return f"{datetime.now(UTC):{_TIME}}"


def _end(pem: bytes) -> str:
    return f"{x509.load_pem_x509_certificate(pem).not_valid_after_utc:{_TIME}}"


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and "node" in content else None
