"""What an error comes from, beneath those that libraries have wrapped around it."""

from __future__ import annotations

import errno
import os

import mlflow
from click import ClickException
from kedro.validation.exceptions import DataValidationError
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from m2fdp.core.engine.process import SitesLostError
from m2fdp.core.errors import InputError, chain
from m2fdp.expectations.process import UncheckedError

_SERVER_ERRORS = 500  # and above: HTTP's, which MLflow gives its own errors too
# What a disk that is full, read-only, broken or another's answers.
_DISK: set[int] = {
    getattr(errno, name)
    for name in ["ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EACCES", "EPERM", "EIO"]
}


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
