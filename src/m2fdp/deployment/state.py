"""A node's memory: a folder that is what it was, or refused.

`node.json` says whose it is, `ended.json` that a run is over. `budget.log` has a device's spending,
`places.log` what was answered, with the signed line, and `kept/` the bytes of the round. Each line
of a log ends in a digest of it and the line before, and names the last digest of the other file. So
what was changed, cut, or put back from an earlier day is refused.
"""

import fcntl
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from errno import ENOSPC
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing, sealed, shown, sync, unsealed

_START = "0" * 64
_APPENDED = os.O_WRONLY | os.O_APPEND | os.O_CREAT
# Lengths of a record's name and of its content.
_RECORD = struct.Struct("<HQ")


class Log:
    """A file of lines, each of which holds a digest of the one before; only ever appended to. One
    that was changed, or is cut, is an `InputError`."""

    def __init__(self, path: Path) -> None:
        self.path, self.entries = path, list[dict[str, Any]]()
        self.digests = [_START]
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        for number, line in enumerate(text.splitlines(keepends=True), start=1):
            content, _, digest = line.rstrip("\n").rpartition("  ")
            whole = line.endswith("\n") and digest == self._digest(content, self.last)
            try:
                entry = json.loads(content) if whole else None
            except ValueError:
                entry = None
            if not isinstance(entry, dict):
                problem = (
                    "is not as this node has written it; nobody but you can know what is spent"
                )
                raise InputError("state", f"{shown(path)}, line {number}", problem)
            self.entries.append(entry)
            self.digests.append(digest)

    @property
    def last(self) -> str:
        return self.digests[-1]

    def append(self, *entries: Mapping[str, Any]) -> None:
        """Write a line for each entry, and wait until they are on the disk."""
        lines, digests = "", [self.last]
        for entry in entries:
            content = json.dumps(entry, ensure_ascii=False)
            digests.append(self._digest(content, digests[-1]))
            lines += f"{content}  {digests[-1]}\n"
        new = not self.path.exists()
        descriptor, written = os.open(self.path, _APPENDED, 0o600), lines.encode()
        try:
            before = os.fstat(descriptor).st_size
            try:
                if os.write(descriptor, written) != len(written):
                    raise OSError(ENOSPC, os.strerror(ENOSPC))
            except OSError as error:  # a part of a line would be refused later
                os.ftruncate(descriptor, before)
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            sync(self.path.parent)
        self.entries += map(dict, entries)
        self.digests += digests[1:]

    def _digest(self, content: str, before: str) -> str:
        return sha256(f"{before}{content}".encode()).hexdigest()


class State:
    """The folder of one node, which one process has at a time; an `InputError` where it is another
    node's, damaged, or older than itself."""

    def __init__(self, folder: Path, node: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            problem = "is in use by another process of this node; a node is one process"
            raise InputError("--state", shown(folder), problem) from None
        try:
            self._check_owner(folder / "node.json", node)
            self.budget, self.places = Log(folder / "budget.log"), Log(folder / "places.log")
            self._check_age()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._lock)

    def kept(self, book: str, what: str) -> bytes | None:
        """What was last kept under a name in a book; an `InputError` where it is damaged."""
        path = self.folder / "kept" / book
        if not path.exists():
            return None
        with path.open("rb") as file:
            places = {name: (start, size) for name, start, size in _records(file)}
            if what not in places:
                return None
            start, size = places[what]
            file.seek(start)
            content = unsealed(file.read(size))
        if content is None:
            raise InputError("state", shown(path), "is damaged; nobody can answer as before")
        return content

    def keep(self, book: str, what: str, content: bytes, waits: bool = True) -> None:
        """Keep it in a book; where it waits it is on the disk when this returns, else once
        something is kept there that waits."""
        path, held = self.folder / "kept" / book, sealed(content)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        new = not path.exists()
        try:
            with path.open("w+b" if new else "r+b") as file:
                end = max((start + size for _, start, size in _records(file)), default=0)
                file.seek(end)
                file.truncate()  # a record that a crash has cut
                file.write(_RECORD.pack(len(what), len(held)) + what.encode() + held)
                file.flush()
                if waits:
                    os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        if new:
            sync(path.parent)

    def forget(self, but: str) -> None:
        """Remove all that is kept, but one book."""
        folder = self.folder / "kept"
        for path in folder.iterdir() if folder.exists() else ():
            if path.name != but:
                path.unlink()

    def ended(self, plan: str) -> tuple[str, frozenset[str]] | None:
        """Why the run of a plan is over, and which children know it; None = it is not."""
        kept = self._ended().get(plan)
        return None if kept is None else (kept["reason"], frozenset(kept["told"]))

    def _ended(self) -> dict[str, Any]:
        path = self.folder / "ended.json"
        try:
            kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            kept = {kept["plan"]: kept} if "plan" in kept else kept  # 0.23 knew of one
            assert all({"reason", "told"} <= set(one) for one in kept.values())
            return dict(kept)
        except (ValueError, AssertionError, AttributeError, TypeError):
            raise InputError("state", shown(path), "is damaged; remove it") from None

    def end(self, plan: str, reason: str, told: Iterable[str] = ()) -> None:
        """The run of a plan is over, and some children know it."""
        kept = self._ended() | {plan: {"reason": reason, "told": sorted(told)}}
        with replacing(self.folder / "ended.json") as unfinished:
            unfinished.write_text(json.dumps(kept), encoding="utf-8")

    def _check_owner(self, file: Path, node: str) -> None:
        """The folder is this node's, or becomes so."""
        if file.exists():
            try:
                name = json.loads(file.read_text(encoding="utf-8"))["name"]
            except (ValueError, KeyError, TypeError):
                raise InputError("state", shown(file), "is damaged") from None
            if name != node:
                problem = f"is that of {name}, not of {node}"
                raise InputError("--state", shown(self.folder), problem)
        elif any(each.name[0] != "." and each.name != "lock" for each in self.folder.iterdir()):
            raise InputError("state", shown(file), "is missing from a state that was begun")
        else:
            with replacing(file) as unfinished:
                unfinished.write_text(json.dumps({"name": node}) + "\n", encoding="utf-8")

    def _check_age(self) -> None:
        """Each answer names its step, and each file the other's last digest of that time."""
        if any("kind" not in entry for entry in self.places.entries):
            problem = (
                "is of an older version, which named no kinds of answers; begin another "
                "state, with a budget less what budget.log says is spent"
            )
            raise InputError("state", shown(self.places.path), problem)
        for log, other in ((self.budget, self.places), (self.places, self.budget)):
            for entry in log.entries:
                if entry["beside"] not in other.digests:
                    problem = f"is older than {shown(log.path)}; what was spent since is not in it"
                    raise InputError("state", shown(other.path), problem)


def _records(file: BinaryIO) -> Iterator[tuple[str, int, int]]:
    """Of what is in a book: name, where it starts, how long it is; but for what was cut."""
    end, at = os.fstat(file.fileno()).st_size, 0
    while at + _RECORD.size <= end:
        file.seek(at)
        length, size = _RECORD.unpack(file.read(_RECORD.size))
        start = at + _RECORD.size + length
        if start + size > end:
            return
        yield file.read(length).decode(errors="replace"), start, size
        at = start + size
