"""Whether MLflow's store can keep a run, asked before anything is computed for it."""

import re
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing
from m2fdp.interruption import deferred
from m2fdp.pipelines.mlflow_internals import UNKNOWN, request_once, tables
from m2fdp.pipelines.tracking import first_line, why_no_answer

KEY = "MLFLOW_TRACKING_URI"
_GET_EXPERIMENT = "/api/2.0/mlflow/experiments/get-by-name"  # of MLflow's REST API
_CONNECT_S = 10.0
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
# Which every database of MLflow's has had, in whatever version.
_LASTING_TABLES = {"experiments", "runs"}
# What migrations call the table of the version, and how they begin the name of one that replaces
# another.
_VERSION, _UNFINISHED = "alembic_version", "_alembic_tmp_"


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
    """Whether MLflow's tables are still to be made: in an empty file, or in one in which somebody
    was stopped as he made them."""
    try:
        # Not read-only: what a killed process left half done is undone first.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            present = {name for (name,) in rows}
            if present >= tables():
                return False
            # The last thing that is made is an experiment.
            held = [name for name in present - {_VERSION} if _has_rows(database, name)]
            foreign = {name for name in present - tables() if not name.startswith(_UNFINISHED)}
    except sqlite3.Error as error:
        raise _refusal(uri, f"{error}; restore it, or move it away to begin a new one") from None
    if not held and foreign <= {_VERSION}:
        return True
    if not present >= _LASTING_TABLES:
        raise _refusal(uri, "is another program's database; name a file of its own for MLflow")
    raise _refusal(uri, f"is of an older MLflow; back it up, then: mlflow db upgrade {uri}")


def _has_rows(database: sqlite3.Connection, table: str) -> bool:
    return database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None


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
    return InputError(KEY, without_password, remedy)
