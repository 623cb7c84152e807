"""Errors that end a command with one line and an exit code, and no traceback; and streams that
raise none."""

import os
import sys
from io import TextIOWrapper

import click


def have_streams() -> None:
    """Let outputs replace what their locale has no character for, and put nothing in the place of
    one that was closed (`>&-`), which logging can't bear."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nothing = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 for the process's life
            setattr(sys, name, nothing)
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


class BadInput(click.ClickException):
    """Something that the user can mend."""

    exit_code = 2


class Untracked(click.ClickException):
    """A run that came to its end, of which MLflow does not know everything."""

    exit_code = 1
