"""What the project uses of MLflow that is in no documented Python API, in one place.

`tests/pipelines/test_mlflow_internals.py` fails when a version of MLflow has it no longer.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mlflow.store.db.db_types import DATABASE_ENGINES
from mlflow.telemetry import set_telemetry_client as set_telemetry_client
from mlflow.types.schema import AnyType as AnyType
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request
from mlflow.utils.validation import MAX_METRICS_PER_BATCH as MAX_METRICS_PER_BATCH
from mlflow.utils.validation import MAX_PARAMS_TAGS_PER_BATCH as MAX_PARAMS_TAGS_PER_BATCH
from mlflow.utils.validation import (
    _validate_model_alias_name,
    _validate_model_alias_name_reserved,
    _validate_model_name,
)
from sqlalchemy import create_engine, select

if TYPE_CHECKING:
    from requests import Response

# Error codes, as servers write them: what a store has not, and has already; an id that no run can
# have; and a row that is there already.
UNKNOWN, EXISTS = "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"
IMPOSSIBLE, REFUSED = "INVALID_PARAMETER_VALUE", "BAD_REQUEST"


def check_alias(name: str, alias: str) -> None:
    """What the registry would say of a model's name and of an alias, before there is a version."""
    _validate_model_name(name)
    _validate_model_alias_name(alias)
    _validate_model_alias_name_reserved(alias)


def request_once(uri: str, endpoint: str, params: Mapping[str, str]) -> "Response":
    """A server's answer to one GET, whatever its status, with the user's credentials and without
    the retries that clients make; it takes `MLFLOW_HTTP_REQUEST_TIMEOUT` at most."""
    once = {"max_retries": 0, "raise_on_status": False, "params": dict(params)}
    return http_request(get_default_host_creds(uri), endpoint, "GET", **once)


def tables() -> set[str]:
    """The tables that MLflow would make in an empty database, or migrate, without asking."""
    # Only a database of one's own needs these imports.
    from mlflow.store.db.base_sql_model import Base
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # noqa: F401

    return set(Base.metadata.tables)


def is_database(uri: str) -> bool:
    """Whether the store is a database that this process can open itself."""
    return urlsplit(uri).scheme.partition("+")[0] in DATABASE_ENGINES


def metric_values(uri: str, run_ids: Sequence[str], names: Sequence[str]) -> list[tuple]:
    """All values of some metrics of some runs in a database of MLflow's: (run id, name, step,
    timestamp in ms, value) of each number. A client would make a query a run and metric."""
    from mlflow.store.tracking.dbmodels.models import SqlMetric

    query = select(
        SqlMetric.run_uuid, SqlMetric.key, SqlMetric.step, SqlMetric.timestamp, SqlMetric.value
    ).where(SqlMetric.run_uuid.in_(run_ids), SqlMetric.key.in_(names), ~SqlMetric.is_nan)
    engine = create_engine(uri)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(query)]
    finally:
        engine.dispose()


@contextmanager
def outside_notebooks() -> Iterator[None]:
    """Inside the block nothing imports IPython, half a second's work, unless a notebook has: MLflow
    does as a run starts, to ask whether this is one."""
    if "IPython" in sys.modules:
        yield
        return
    sys.modules["IPython"] = None  # type: ignore[assignment]  # Python's way to forbid an import
    try:
        yield
    finally:
        del sys.modules["IPython"]
