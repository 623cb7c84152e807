"""That MLflow still has what only `mlflow_internals` may use of it, and that it means the same."""

import ast
import inspect
import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST
from mlflow.telemetry import client as telemetry
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request
from mlflow.utils.validation import _validate_batch_log_limits

import m2fdp
from m2fdp.pipelines import mlflow_internals as internals

PACKAGE = Path(m2fdp.__file__).parent
# Of MLflow's own documentation: https://mlflow.org/docs/latest/api_reference/python_api
DOCUMENTED = {"mlflow", "mlflow.client", "mlflow.entities", "mlflow.entities.model_registry"}
DOCUMENTED |= {"mlflow.exceptions", "mlflow.models", "mlflow.pyfunc", "mlflow.types"}


@pytest.fixture
def store(tmp_path, empty_store):
    """The address of an empty database."""
    copy = tmp_path / "mlflow.db"
    copy.write_bytes(empty_store.read_bytes())
    return f"sqlite:///{copy}"


def test_no_other_module_imports_what_mlflow_does_not_document():
    others = {}
    for path in PACKAGE.rglob("*.py"):
        if path.name == "mlflow_internals.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                if name.partition(".")[0] == "mlflow" and name not in DOCUMENTED:
                    others[path.name] = name
    assert others == {}


def test_one_request_takes_the_options_that_forgo_retries():
    parameters = inspect.signature(http_request).parameters
    assert list(parameters)[:3] == ["host_creds", "endpoint", "method"]
    assert {"max_retries", "raise_on_status"} < parameters.keys()
    assert any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    assert list(inspect.signature(get_default_host_creds).parameters) == ["store_uri"]


def test_the_tables_are_those_that_mlflow_makes(empty_store):
    with closing(sqlite3.connect(empty_store)) as database:
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        table_names = {name for (name,) in rows}
    assert {"experiments", "runs", "metrics"} < internals.tables() <= table_names


def test_error_codes_tell_what_is_unknown_impossible_and_there_already(store):
    client = mlflow.MlflowClient(store)
    client.create_experiment("one")
    for ask, code in (
        (lambda: client.get_run("0" * 32), internals.UNKNOWN),
        (lambda: client.get_run("../x"), internals.IMPOSSIBLE),
        (lambda: client.create_experiment("one"), internals.EXISTS),
    ):
        with pytest.raises(MlflowException) as refused:
            ask()
        assert refused.value.error_code == code
    assert MlflowException("", error_code=BAD_REQUEST).error_code == internals.REFUSED
    others = {internals.UNKNOWN, internals.IMPOSSIBLE, internals.EXISTS, internals.REFUSED}
    assert MlflowException("out of order").error_code not in others


def test_a_query_of_the_database_finds_what_the_client_does(store):
    client = mlflow.MlflowClient(store)
    ids = [client.create_run("0").info.run_id for _ in range(2)]
    for run_id in ids:
        client.log_batch(
            run_id,
            [Metric("accuracy", step / 4, 7 * step, step) for step in range(3)]
            + [Metric("loss", math.nan, 1, 1), Metric("other", 1.0, 1, 1)],
        )
    by_client = {
        (run_id, name, metric.step, metric.timestamp, metric.value)
        for run_id in ids
        for name in ("accuracy", "loss")
        for metric in client.get_metric_history(run_id, name)
        if not math.isnan(metric.value)
    }
    values = internals.metric_values(store, ids, ("accuracy", "loss"))
    assert len(values) == 6
    assert set(values) == by_client


@pytest.mark.parametrize(
    ("uri", "database"),
    [
        ("sqlite:///mlflow.db", True),
        ("postgresql+psycopg2://somebody@example.org/runs", True),
        ("http://tracking.example.org", False),
        ("file:///mlruns", False),
    ],
)
def test_databases_are_known_by_their_address(uri, database):
    assert internals.is_database(uri) == database


def test_a_server_takes_so_many_metrics_in_a_batch_and_no_more():
    limit = internals.MAX_METRICS_PER_BATCH
    metrics = [Metric("m", 0.0, 0, step) for step in range(limit + 1)]
    _validate_batch_log_limits(metrics[:limit], params=[], tags=[])
    with pytest.raises(MlflowException, match=str(limit)):
        _validate_batch_log_limits(metrics, params=[], tags=[])


def test_telemetry_ends_when_its_setting_is_read_again(monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setattr(telemetry, "_MLFLOW_TELEMETRY_CLIENT", object())
    internals.set_telemetry_client()
    assert telemetry.get_telemetry_client() is None


def test_a_run_that_starts_imports_no_ipython_unless_it_is_there():
    code = """
import sys
from m2fdp.pipelines.mlflow_internals import outside_notebooks
from mlflow.utils.databricks_utils import is_running_in_ipython_environment as asks
with outside_notebooks():
    print(asks(), end=" ")
print("IPython" in sys.modules, end=" ")
print(asks(), "IPython" in sys.modules, end=" ")
with outside_notebooks():
    print(sys.modules["IPython"] is not None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # MLflow takes it for a program that runs in no notebook, before and after IPython is imported.
    assert done.stdout.split() == ["False", "False", "False", "True", "True"]
