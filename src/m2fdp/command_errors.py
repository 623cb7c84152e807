"""Errors that end a command with one line and an exit code, and no traceback."""

from __future__ import annotations

import click


class BadInput(click.ClickException):
    """Something that the user can mend."""

    exit_code = 2


class Untracked(click.ClickException):
    """A run that came to its end, of which MLflow does not know everything."""

    exit_code = 1
