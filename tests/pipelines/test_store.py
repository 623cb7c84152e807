"""What a store that can't keep a run is answered with: one line, in seconds, nothing changed."""

import inspect
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from m2fdp.core.errors import InputError
from m2fdp.pipelines import tracking as store
from m2fdp.pipelines.mlflow_internals import tables
from m2fdp.pipelines.tracking import check_store


@pytest.fixture(autouse=True)
def quick_requests(monkeypatch):
    """As settings.py does, with a shorter wait."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


def refusal(uri: str) -> str:
    started = time.monotonic()
    with pytest.raises(InputError) as refused:
        check_store(uri)
    assert time.monotonic() - started < 15
    message = str(refused.value)
    assert message.startswith(f"MLFLOW_TRACKING_URI = {uri!r}: ") and "\n" not in message
    return message


def copied(empty_store, uri):
    """As MLflow makes a store, but quickly: bit by bit, in the file itself."""
    path = Path(uri.removeprefix("sqlite:///"))
    if not path.is_file() or not path.stat().st_size:
        with path.open("wb") as file, empty_store.open("rb") as store:
            while part := store.read(200_000):
                file.write(part)
                file.flush()
                time.sleep(0.002)
    with closing(sqlite3.connect(path)) as database:
        database.execute("SELECT * FROM alembic_version, trace_info")


OPENING = """
import sqlite3, sys, time
from contextlib import closing
from functools import partial
from pathlib import Path
from m2fdp.pipelines import tracking as store

{quick}
for line in sys.stdin:
    try:
        print(store.check_store(line.strip()), flush=True)
    except Exception as error:
        print(error, flush=True)
"""


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.full)])
def test_of_first_runs_at_once_none_is_refused(empty_store, tmp_path, real):
    quick = (
        f"{inspect.getsource(copied)}\nstore._open = partial(copied, Path({str(empty_store)!r}))"
    )
    command = [sys.executable, "-c", OPENING.format(quick="" if real else quick)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    openers = [subprocess.Popen(command, **pipes) for _ in range(3)]
    try:
        for race in range(3 if real else 20):
            racers = openers[race % 2 :]  # three, or two
            for racer in racers:
                print(f"sqlite:///{tmp_path}/{race}/mlflow.db", file=racer.stdin, flush=True)
            assert {racer.stdout.readline() for racer in racers} == {"None\n"}
    finally:
        for opener in openers:
            opener.communicate()


@pytest.mark.full
@pytest.mark.parametrize("processes", [2, 3])
def test_first_commands_at_once_all_end_well(project, processes):
    store = project / "mlruns" / "mlflow.db"
    command = [sys.executable, "-m", "kedro", "run", "--params=training.rounds=1,figures=false"]
    for race in range(10):
        store.unlink()
        runs = [
            subprocess.Popen(
                [*command[:-1], f"{command[-1]},cell=race/{race}-{number}"], cwd=project
            )
            for number in range(processes)
        ]
        assert [run.wait() for run in runs] == [0] * processes


def _stopped(path):
    """Somebody was killed as he made the tables, or two made them."""
    for name in tables():
        if name not in {"experiments", "runs", "metrics"}:
            _statement(f"DROP TABLE {name}")(path)
    _statement("DELETE FROM experiments", "CREATE TABLE _alembic_tmp_tags (name)")(path)


def test_a_half_made_store_is_made_anew(empty_store, tmp_path, monkeypatch):
    path = tmp_path / "mlflow.db"
    shutil.copy(empty_store, path)
    _stopped(path)
    monkeypatch.setattr("m2fdp.pipelines.tracking._open", partial(copied, empty_store))
    check_store(f"sqlite:///{path}")
    assert path.read_bytes() == empty_store.read_bytes()


def test_the_projects_own_store_and_one_that_is_not_there_yet_are_good(
    empty_store, tmp_path, monkeypatch
):
    check_store(f"sqlite:///{empty_store}")
    before = time.monotonic()
    check_store(f"sqlite:///{empty_store}")
    assert time.monotonic() - before < 0.5  # asked of every run
    (tmp_path / "empty.db").touch()
    monkeypatch.setattr("m2fdp.pipelines.tracking._open", partial(copied, empty_store))
    for name in ("empty.db", "new/mlflow.db"):
        check_store(f"sqlite:///{tmp_path}/{name}")


def _cut(path):
    path.write_bytes(path.read_bytes()[:500_000])


def _text(path):
    path.write_text("round,accuracy\n" * 1000)


def _statement(*statements: str) -> Callable:
    def change(path):
        with closing(sqlite3.connect(path)) as database:
            for statement in statements:
                database.execute(statement)
            database.commit()

    return change


def _foreign(path):
    path.unlink()
    _statement("CREATE TABLE alembic_version (version_num)", "CREATE TABLE songs (name)")(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_cut, "database disk image is malformed; restore it, or move it away"),
        (_text, "file is not a database; restore it, or move it away"),
        (_foreign, "is another program's database; name a file of its own for MLflow"),
        (_statement("DROP TABLE trace_info"), "is of an older MLflow; back it up, then: mlflow db"),
        (_statement("UPDATE alembic_version SET version_num = 'later'"), "found version later"),
    ],
)
def test_a_database_that_is_broken_or_not_this_mlflows_is_left_as_it_was(
    empty_store, tmp_path, change, message
):
    path = tmp_path / "mlflow.db"
    shutil.copy(empty_store, path)
    change(path)
    before = path.read_bytes()
    assert message in refusal(f"sqlite:///{path}")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://x", "unsupported URI"),
        ("postgresql://127.0.0.1/runs", "No module named 'psycopg"),
        ("mysql://127.0.0.1/runs", "; install the database's driver"),
        ("mssql+nothing://x", "mssql.nothing"),
        ("file:./mlruns", "sqlite:///mlflow.db"),
        ("./mlruns", "sqlite:///mlflow.db"),
        ("sqlite:", "Could not parse"),
        ("sqlite:////proc/mlflow.db", "can't be written to: "),
        ("sqlite:////proc", "can't be written to: Is a directory"),
        ("http://127.0.0.1:9", "the server does not answer: "),  # the port of `discard`
    ],
)
def test_a_store_that_there_can_not_be_is_named(uri, message):
    assert message in refusal(uri)


def test_no_password_is_shown():
    with pytest.raises(InputError, match=r"http://me:\*\*\*@127.0.0.1:9'"):
        check_store("http://me:secret@127.0.0.1:9")


@pytest.fixture
def silent_server() -> Iterator[str]:
    """It accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_never_answers_is_waited_for_once(silent_server):
    assert "the server does not answer: timed out" in refusal(silent_server)


def test_a_database_that_refuses_is_asked_once(silent_server, monkeypatch):
    connections = []

    class Engine:
        def connect(self):
            connections.append(self)
            raise OperationalError("SELECT 1", {}, Exception("password authentication failed"))

    monkeypatch.setattr(store, "create_engine", lambda url: Engine())
    uri = silent_server.replace("http://", "postgresql://me:secret@") + "/runs"
    with pytest.raises(InputError) as refused:
        check_store(uri)
    assert "password authentication failed" in str(refused.value)
    assert "secret" not in str(refused.value) and len(connections) == 1


def test_a_server_of_something_else_is_told_with_its_answer():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        message = refusal(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert "does not answer as MLflow does but with 501" in message


def test_a_run_with_a_silent_server_ends_within_15_seconds_in_one_line(
    project, silent_server, monkeypatch
):
    for setting in ("TIMEOUT", "MAX_RETRIES"):  # so that the project's own count
        monkeypatch.delenv(f"MLFLOW_HTTP_REQUEST_{setting}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", silent_server)
    command = [sys.executable, "-m", "kedro", "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == (
        f"Error: MLFLOW_TRACKING_URI = {silent_server!r}: the server does not answer: timed out\n"
    )
