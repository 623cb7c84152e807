"""Where MLflow keeps the runs, and whether it can; which process owns each and what it locks; how
runs end and fail."""

import errno
import fcntl
import hashlib
import logging
import os
import re
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import mlflow
import psutil
from click import ClickException
from click.exceptions import Exit
from filelock import FileLock
from kedro.validation.exceptions import DataValidationError
from mlflow import MlflowClient
from mlflow.entities import Run, RunStatus
from mlflow.exceptions import MlflowException
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from m2fdp.core.engine.process import SitesLostError
from m2fdp.core.errors import InputError, chain
from m2fdp.core.files import check_folders, replacing
from m2fdp.expectations.process import UncheckedError
from m2fdp.interruption import deferred, interruptible
from m2fdp.pipelines.mlflow_internals import UNKNOWN, request_once, tables

_SERVER_ERRORS = 500  # and above: HTTP's, which MLflow gives its own errors too
# What a disk that is full, read-only, broken or another's answers.
_DISK: set[int] = {
    getattr(errno, name)
    for name in ["ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EACCES", "EPERM", "EIO"]
}
PROCESS_TAG = "process"
END_TAG = "ended"  # why a run has no result
# The kernel's boot time, which start times count from, may be corrected while we run.
CLOCK_CORRECTION_S = 5.0
_LONGEST_REASON = 2_000  # characters

logger = logging.getLogger(__name__)


def first_line(error: BaseException) -> str:
    """What an error says, in one line; the type's name where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def is_outage(error: BaseException) -> bool:
    """Whether MLflow's store failed, rather than refused a request."""
    if isinstance(error, MlflowException):
        return error.get_http_status_code() >= _SERVER_ERRORS
    return isinstance(error, (OSError, SQLAlchemyError))


def why_no_answer(error: BaseException) -> str:
    """Why a store gave none: the cause of a failed connection lies deep in others' errors."""
    *_, error = chain(error)
    return first_line(error)


def trouble(error: BaseException) -> str | None:
    """One line on a disk, a store or another process that failed; None for any other error, which
    is a bug's."""
    for cause in chain(error):
        if isinstance(cause, OSError) and cause.errno in _DISK:
            reason = os.strerror(cause.errno)
            failed = reason if cause.filename is None else f"{cause.filename}: {reason}"
            return f"{failed}. Files that were there before are as they were."
        if isinstance(cause, (SitesLostError, UncheckedError)):
            return str(cause)
        if isinstance(cause, (MlflowException, SQLAlchemyError)) and is_outage(cause):
            return f"MLflow at {mlflow.get_tracking_uri()} fails: {why_no_answer(cause)}."
    return None


def reason(error: BaseException) -> str:
    """Why a run has failed, in one line; the type's name only where the user is not to blame."""
    if isinstance(error, DataValidationError):
        return f"{error.dataset_name}: {error.message}"
    if (line := trouble(error)) is not None:
        return line
    in_one_line = isinstance(error, (ClickException, InputError))
    return first_line(error) if in_one_line else f"{type(error).__name__}: {first_line(error)}"


# The store

STORE = "MLFLOW_TRACKING_URI"
_GET_EXPERIMENT = "/api/2.0/mlflow/experiments/get-by-name"  # of MLflow's REST API
_CONNECT_S = 10.0
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
# Which every database of MLflow's has had, in whatever version.
_LASTING_TABLES = {"experiments", "runs"}
# What migrations call the table of the version, and how they begin the name of one that replaces
# another.
_VERSION, _UNFINISHED = "alembic_version", "_alembic_tmp_"


def _project_store(project: Path) -> str:
    return f"sqlite:///{project.as_posix()}/mlruns/mlflow.db"


def tracking_uri(project: Path) -> str:
    """MLflow's store: `MLFLOW_TRACKING_URI`, else the SQLite file of the project."""
    return os.environ.get(STORE) or _project_store(project)


def artifact_location(project: Path) -> str | None:
    """The folder of the artifacts, or None where a store of another place decides."""
    is_own = tracking_uri(project) == _project_store(project)
    return (project / "mlruns" / "artifacts").as_uri() if is_own else None


def connect(project: Path) -> str:
    """Point MLflow at the project's store; returns the id of the experiment that keeps the runs,
    which is made where there is none yet."""
    # Kedro sets up logs and displays when it is imported, which a notebook that only looks for the
    # store should be spared.
    from kedro.framework.session import KedroSession

    session = KedroSession.create(project, save_on_close=False)
    with session:
        context = session.load_context()
    name = context.mlflow.tracking.experiment.name  # type: ignore[attr-defined]  # kedro-mlflow's
    return MlflowClient().get_experiment_by_name(name).experiment_id


def check_store(uri: str) -> None:
    """Refuse a store that does not answer or is none of MLflow's, and leave it as it was: MLflow
    itself tries a server for minutes, and makes its tables in any database."""
    kind = uri.partition(":")[0].partition("+")[0]
    if kind in ("http", "https"):
        _check_server(uri)
    elif kind == "sqlite":
        _check_file(uri, Path(_parsed(uri).database or ""))  # none: the working directory
    elif kind in _PORTS:
        _check_database(_parsed(uri))
    try:
        _open(uri)
    except Exception as error:  # each kind of store has its own
        raise _refusal(uri, f"can't be used: {first_line(error)}") from None


def _open(uri: str) -> None:
    MlflowClient(uri).search_experiments(max_results=1)


def _check_server(uri: str) -> None:
    try:
        answer = request_once(uri, _GET_EXPERIMENT, {"experiment_name": "m2fdp"})
    except MlflowException as error:
        raise _refusal(uri, f"the server does not answer: {why_no_answer(error)}") from None
    unknown_experiment = answer.status_code == 404 and UNKNOWN in answer.text
    if not (answer.ok or unknown_experiment):
        status = f"{answer.status_code} {answer.reason}"
        raise _refusal(uri, f"the server does not answer as MLflow does but with {status}")


def _check_file(uri: str, path: Path) -> None:
    """SQLite itself tells a file that is cut off, or none of its own, when it reads the schema."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise _refusal(uri, f"can't be written to: {error.strerror}") from None
    if _is_unmade(uri, path):
        # Of two processes that make the tables in one file, both fail; and so does every later one.
        with FileLock(path.with_name(f".{path.name}.lock")):
            if _is_unmade(uri, path):
                with deferred(), replacing(path) as unfinished:
                    _open(f"{uri.partition(':')[0]}:///{unfinished}")


def _is_unmade(uri: str, path: Path) -> bool:
    """Whether MLflow's tables are still to be made: in an empty file, or in one whose maker was
    stopped."""
    try:
        # Not read-only: what a killed process left half done is undone first.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            present = {name for (name,) in rows}
            if present >= tables():
                return False
            # The last thing that is made is an experiment.
            held = any(
                database.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone()
                for name in present - {_VERSION}
            )
    except sqlite3.Error as error:
        raise _refusal(uri, f"{error}; restore it, or move it away to begin a new one") from None
    foreign = {name for name in present - tables() if not name.startswith(_UNFINISHED)}
    if not held and foreign <= {_VERSION}:
        return True
    if not present >= _LASTING_TABLES:
        raise _refusal(uri, "is another program's database; name a file of its own for MLflow")
    raise _refusal(uri, f"is of an older MLflow; back it up, then: mlflow db upgrade {uri}")


def _check_database(url: URL) -> None:
    """Its driver, and one attempt to connect; MLflow would make ten, of 100 s."""
    host, port = url.host, url.port or _PORTS[url.get_backend_name()]
    try:
        engine = create_engine(url)
        if host is not None:
            socket.create_connection((host, port), _CONNECT_S).close()
        engine.connect().close()
    except ImportError as error:
        raise _refusal(str(url), f"{first_line(error)}; install the database's driver") from None
    except (OSError, SQLAlchemyError) as error:
        raise _refusal(str(url), first_line(error)) from None


def _parsed(uri: str) -> URL:
    try:
        return make_url(uri)
    except ArgumentError as error:
        raise _refusal(uri, first_line(error)) from None


def _refusal(uri: str, remedy: str) -> InputError:
    without_password = re.sub(r"(?<=//)([^/@:]*):[^/@]*@", r"\1:***@", uri)
    return InputError(STORE, without_password, remedy)


# Runs and the processes that own them


def process_tag() -> str:
    """`host:pid:start time` of this process: who must live for its runs to be running.

    The host is a digest of its name: runs are shown to others, and tell nothing of the machine.
    """
    process = psutil.Process()
    return f"{_host()}:{process.pid}:{process.create_time():.2f}"


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]


def tell_end(run: Run, why: str) -> None:
    """Write on the page of a run that ends before its time why it does, instead of a card."""
    line = " ".join(why.replace(f"{Path.cwd()}/", "").split())[:_LONGEST_REASON]
    client = MlflowClient()
    client.set_tag(run.info.run_id, END_TAG, line)
    client.set_tag(run.info.run_id, "mlflow.note.content", f"**Ended before its time:** {line}")


def forget_end(run: Run) -> None:
    """A run that goes on has not ended."""
    if END_TAG in run.data.tags:
        MlflowClient().delete_tag(run.info.run_id, END_TAG)


def held_by_another_process(run: Run) -> bool:
    """Whether a living process of this host, other than this one, has the run open."""
    tag = run.data.tags.get(PROCESS_TAG, "::")
    host, pid, _ = tag.rsplit(":", 2)
    is_others = host == _host() and pid != str(os.getpid())
    return run.info.status == "RUNNING" and is_others and _lives(tag)


def close_stale_runs() -> list[str]:
    """Mark as KILLED the running runs of this host whose process is gone; returns their ids."""
    here = f"attributes.status = 'RUNNING' and tags.{PROCESS_TAG} LIKE '{_host()}:%'"
    running = mlflow.search_runs(
        search_all_experiments=True, filter_string=here, output_format="list"
    )
    stale = [run for run in running if not _lives(run.data.tags[PROCESS_TAG])]
    for run in stale:
        tell_end(run, "its process was killed, or the machine was switched off")
        MlflowClient().set_terminated(run.info.run_id, RunStatus.to_string(RunStatus.KILLED))
    return [run.info.run_id for run in stale]


def _lives(tag: str) -> bool:
    _, pid, started = tag.rsplit(":", 2)
    try:
        process = psutil.Process(int(pid))
        is_same = abs(process.create_time() - float(started)) < CLOCK_CORRECTION_S
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def outages_tolerated(run: Run) -> Iterator[None]:
    """A store that fails as the run ends is no reason to fail too: a later run closes this one."""
    try:
        yield
    except Exception as error:
        if not is_outage(error):
            raise
        line = "MLflow at %s does not know that run %s has ended; the next run there tells it."
        logger.warning(line, mlflow.get_tracking_uri(), run.info.run_name)


@contextmanager
def closing_runs() -> Iterator[None]:
    """No MLflow run that is active in this thread outlives the block as RUNNING.

    It ends as FINISHED with the block, as FAILED by an error, and as KILLED by Ctrl-C or
    SIGTERM, which raise `Interrupted` inside the block.
    """
    status, why = RunStatus.FAILED, ""
    with interruptible():  # until the last run is closed
        try:
            with interruptible():
                yield
            status = RunStatus.FINISHED
        except KeyboardInterrupt as interruption:
            status, why = RunStatus.KILLED, f"stopped by {first_line(interruption)}"
            raise
        except Exit:  # of a command that has said why
            raise
        except Exception as error:
            why = reason(error)
            raise
        finally:
            with deferred():
                while run := mlflow.active_run():
                    with outages_tolerated(run):
                        if why:
                            tell_end(run, why)
                        mlflow.end_run(RunStatus.to_string(status))


# What file systems that know no locks answer.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def locked(path: Path, key: str, name: str, remedy: str) -> Iterator[None]:
    """Hold the lock of the file at `path`, in which stands which process holds it.

    However the process ends, its lock goes with it, so that none is ever stale. The file stays.
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

    The kernel keeps the lock for a living process, or for one whose host a file server still waits
    for. So nobody should delete the file: then two would hold the lock.
    """
    if not tag:
        return "another process has just begun it"
    host, pid, started = tag.rsplit(":", 2)
    began = datetime.fromtimestamp(float(started)).strftime("%Y-%m-%d %H:%M:%S")
    place = "" if process_tag().startswith(f"{host}:") else " of another host"
    return f"process {pid}{place}, begun {began}, is running it"
