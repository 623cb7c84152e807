"""MLflow's pages about the project's runs: their address, and the server that shows them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click
import mlflow

from m2fdp.pipelines.tracking import connect, tracking_uri
from m2fdp.pipelines.views import RUNS, save_view_of_runs, view_link

_HOST, _PORT = "127.0.0.1", 5000
_TRIED = 100  # ports
# One worker, and none of MLflow's jobs: it would start 15 processes, and workers that take longer
# than 5 s to import, as beside a study, are killed and started again for ever.
_SETTINGS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
# Prints lines once somebody listens at an address, unless the server, its parent, is gone before.
_TELLER = """
import os, signal, socket, sys, time

signal.signal(signal.SIGINT, signal.SIG_DFL)
parent, (host, port, *lines) = os.getppid(), sys.argv[1:]
while os.getppid() == parent:
    with socket.socket() as asked:
        if asked.connect_ex((host, int(port))) == 0:
            print(*lines, sep="\\n", flush=True)
            break
    time.sleep(0.1)
"""


def show(project: Path) -> None:
    """Print where the runs are seen, and the latest study; unless the store is a server, become one
    that shows them."""
    experiment = connect(project)
    client = mlflow.MlflowClient()
    save_view_of_runs(client, experiment)
    uri, pages = tracking_uri(project), _pages(client, experiment)
    if uri.startswith("http"):
        for name, page in pages.items():
            click.echo(f"{name}: {uri.rstrip('/')}/{page}")
        return
    port = free_port(_PORT)
    if port != _PORT:
        click.echo(f"Port {_PORT} is taken, perhaps by an older `make ui`; this one takes {port}.")
    sys.stdout.flush()
    lines = [f"{name}: http://{_HOST}:{port}/{page}" for name, page in pages.items()]
    tell_once_served(port, lines)
    _serve(uri, port)


def _pages(client: mlflow.MlflowClient, experiment: str) -> dict[str, str]:
    """What there is to see, and its place: of runs in studies alone, the latest of these."""
    studies = client.search_runs([experiment], "tags.role = 'study'", max_results=1)
    names = [study.data.tags["study"] for study in studies]
    pages = {f"The study {name}": view_link(experiment, name, "TABLE") for name in names}
    if names and not client.search_runs([experiment], "tags.study IS NULL", max_results=1):
        return pages
    return {"The runs": view_link(experiment, RUNS, "TABLE"), **pages}


def tell_once_served(port: int, lines: Sequence[str]) -> subprocess.Popen:
    """Have a process print lines when somebody listens at a port, and end."""
    return subprocess.Popen([sys.executable, "-c", _TELLER, _HOST, str(port), *lines])


def free_port(first: int) -> int:
    """The first port from `first` on where nobody answers and that can be listened at.

    Raises:
        click.ClickException: none of a hundred is free.
    """
    for port in range(first, first + _TRIED):
        with socket.socket() as asked, socket.socket() as offered:
            asked.settimeout(1.0)
            answered = asked.connect_ex((_HOST, port)) == 0
            # As servers do: a port whose last connections are only just closed is free.
            offered.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                offered.bind((_HOST, port))
            except OSError:
                continue
            if not answered:
                return port
    raise click.ClickException(f"None of the ports {first} to {first + _TRIED - 1} is free.")


def _serve(uri: str, port: int) -> NoReturn:
    """Become MLflow's server."""
    server = [sys.executable, "-m", "mlflow", "ui", "--workers", "1"]
    where = ["--host", _HOST, "--port", str(port), "--backend-store-uri", uri]
    os.execve(sys.executable, [*server, *where], os.environ | _SETTINGS)
