"""What MLflow's pages show of runs: descriptions, views that are kept, their server.

MLflow 3 has no views in its Python API. What its pages save when somebody shares a view is a tag of
the experiment, JSON, and `viewStateShareKey` in an address names it.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from mlflow import MlflowClient

from m2fdp.core.metrics import ACCURACY, DELAY, ENERGY, EPSILON_NOMINAL, EPSILON_VERIFIED, names_of
from m2fdp.pipelines.tracking import connect, tracking_uri
from m2fdp.reporting.cards import FIGURES, Card

DESCRIPTION = "mlflow.note.content"  # the tag that MLflow's pages show as Markdown
TRAINING_PAGES = "workflowType=machine_learning"  # MLflow's pages begin with those for GenAI
LONGEST = 7_900  # characters; MLflow cuts a tag off at 8,000
SHOWN = "accuracy_curve.png"  # in the page itself; others are linked


def picture(run_id: str, path: str, shows: str) -> str:
    """An artifact of a run as a picture in its description."""
    return f"![{shows}](get-artifact?path={path}&run_uuid={run_id})"


def artifact_link(experiment_id: str, run_id: str, path: str, shows: str) -> str:
    """A link to an artifact on the run's page."""
    page = f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{path}"
    return f"[{shows}]({page}?{TRAINING_PAGES})"


def described(card: Card, experiment_id: str, run_id: str, files: Sequence[str]) -> str:
    """A run's card as its description."""
    after = [picture(run_id, SHOWN, FIGURES[SHOWN])] if SHOWN in files else []
    there = {name: shows for name, shows in FIGURES.items() if name in files}
    links = [artifact_link(experiment_id, run_id, *each) for each in there.items()]
    if links:
        after.append(f"Figures: {', '.join(links)}.")
    return card.shortened(LONGEST, after)


RUNS, _OF_NO_STUDY = "kedro-run", "tags.study IS NULL"  # the view of the runs of no study
_VIEW = "mlflow.sharedViewState."  # begins the tag
_METRICS = names_of((ACCURACY, EPSILON_VERIFIED, EPSILON_NOMINAL, ENERGY, DELAY))


def save_view(
    client: MlflowClient, experiment_id: str, key: str, chosen: str, columns: list[str], **more: Any
) -> None:
    """Keep a view as `key`, in the place of an older one.

    Args:
        chosen: MLflow's filter of the runs that it shows.
        columns: what it shows beside metrics, as MLflow names columns: tags.`seed`.
        more: other entries: `orderByKey`, `groupBy`.
    """
    shown = [*(f"metrics.`{name}`" for name in _METRICS), *columns]
    view = {"searchFilter": chosen, "orderByAsc": False, "selectedColumns": shown}
    view |= {"runsHiddenMode": "SHOW_ALL", **more}
    client.set_experiment_tag(experiment_id, _VIEW + key, json.dumps(view))


def view_link(experiment_id: str, key: str, mode: str) -> str:
    """Where MLflow's pages show a view that is kept, as a TABLE or as a CHART."""
    return (
        f"#/experiments/{experiment_id}/runs?viewStateShareKey={key}"
        f"&compareRunsMode={mode}&{TRAINING_PAGES}"
    )


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
    experiment, client = connect(project), MlflowClient()
    columns = [f"tags.`{key}`" for key in ("algorithm", "dataset", "seed", "cell")]
    latest = "attributes.start_time"
    save_view(client, experiment, RUNS, _OF_NO_STUDY, columns, orderByKey=latest)
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
    server = [sys.executable, "-m", "mlflow", "ui", "--workers", "1"]
    where = ["--host", _HOST, "--port", str(port), "--backend-store-uri", uri]
    os.execve(sys.executable, [*server, *where], os.environ | _SETTINGS)


def _pages(client: MlflowClient, experiment: str) -> dict[str, str]:
    """What there is to see, and its place; where all runs are of studies, the latest study."""
    studies = client.search_runs([experiment], "tags.role = 'study'", max_results=1)
    names = [study.data.tags["study"] for study in studies]
    pages = {f"The study {name}": view_link(experiment, name, "TABLE") for name in names}
    if names and not client.search_runs([experiment], _OF_NO_STUDY, max_results=1):
        return pages
    return {"The runs": view_link(experiment, RUNS, "TABLE"), **pages}


def tell_once_served(port: int, lines: Sequence[str]) -> subprocess.Popen:
    """Have a process print lines when somebody listens at a port, and end."""
    return subprocess.Popen([sys.executable, "-c", _TELLER, _HOST, str(port), *lines])


def free_port(first: int) -> int:
    """The first port from `first` on where nobody answers and that can be listened at."""
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
