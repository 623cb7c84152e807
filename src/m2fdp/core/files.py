"""Files that are there whole or not at all, also after the process is killed; and their names."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path, PurePath

from m2fdp.core.errors import InputError, chain


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to; when the block ends, the file there replaces `path` in one step.

    An error leaves the old file as it was. A process that is killed may leave a hidden file
    `.<pid>.<name>` beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, which a rename can't leave; and not a temporary file of the system's,
    # which only its owner may read. The suffix stays: writers choose the format by it.
    unfinished = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield unfinished
        sync(unfinished)
        os.replace(unfinished, path)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        _name_file(error, unfinished, path)
        raise
    sync(path.parent)


def check_folders(files: Iterable[Path]) -> None:
    """Refuse to write files below what is no folder.

    Raises:
        InputError: it names the file that is in a folder's place, or the link that leads nowhere.
    """
    for folder in sorted({folder for file in files for folder in file.parents}):
        if os.path.lexists(folder) and not folder.is_dir():
            where = os.readlink(folder) if folder.is_symlink() else None
            what = "is no folder" if where is None else f"is a link to {where}, which is not there"
            raise InputError("folder", shown(folder), f"{what}; move it away")


def sealed(content: bytes) -> bytes:
    """Content behind its SHA-256, as torch's own reader would not notice a changed byte."""
    return sha256(content).digest() + content


def unsealed(written: bytes) -> bytes | None:
    """What was sealed; None if a byte of it has changed."""
    digest, content = written[:32], written[32:]
    return content if sha256(content).digest() == digest else None


def shown(path: PurePath) -> str:
    """A path as users type it: from the folder they are in, if it is below."""
    folder = Path.cwd()
    return os.path.relpath(path, folder) if Path(path).is_relative_to(folder) else str(path)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_file(error: BaseException, unfinished: Path, path: Path) -> None:
    """A write that fails does not say of which file; nor what a library wraps around it."""
    for cause in chain(error):
        if isinstance(cause, OSError) and cause.filename in (None, str(unfinished)):
            cause.filename = str(path)
