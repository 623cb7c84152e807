"""Files that one process at a time may write: a lock that the kernel lifts when its holder ends."""

from __future__ import annotations

import errno
import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from m2fdp.core.errors import InputError
from m2fdp.core.files import check_folders
from m2fdp.pipelines.tracking import process_tag

# What file systems that know no locks answer.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}

logger = logging.getLogger(__name__)


@contextmanager
def locked(path: Path, key: str, name: str, remedy: str) -> Iterator[None]:
    """Hold the lock of the file at `path`, in which stands which process holds it.

    However the process ends, its lock goes with it, so that none is ever stale. The file stays.

    Args:
        key: the kind of what is locked, as the refusal tells it.
        name: which of its kind.
        remedy: what to do instead of waiting.

    Raises:
        InputError: another process holds it, or its folder can't be made.
    """
    check_folders([path])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = _holder(file.read())
            raise InputError(key, name, f"{holder}; wait until it ends, or {remedy}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            logger.warning("%s can't be locked; let no other process run %s %s.", path, key, name)
        file.truncate(0)
        file.write(process_tag())
        file.flush()
        yield


def _holder(tag: str) -> str:
    """Which process a lock's file names; for a moment after it was locked, none.

    Whoever is refused a lock that the kernel keeps is refused it by a living process, or by one
    whose host a file server still waits for: the file is never to be deleted, for then two hold it.
    """
    if not tag:
        return "another process has just begun it"
    host, pid, started = tag.rsplit(":", 2)
    began = datetime.fromtimestamp(float(started)).strftime("%Y-%m-%d %H:%M:%S")
    place = "" if process_tag().startswith(f"{host}:") else " of another host"
    return f"process {pid}{place}, begun {began}, is running it"
