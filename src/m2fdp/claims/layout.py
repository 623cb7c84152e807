"""Panels of a figure, as a study's file declares them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from m2fdp.claims.frames import ARM
from m2fdp.core.blocks import Block

# As x: a curve over the rounds, or over the simulated seconds that they took, of one of `CURVES`.
ROUND, DELAY = "round", "delay_s"
OVER_A_RUN = (ROUND, DELAY)
ACCURACY, LOSS = "accuracy", "loss"
CURVES = (ACCURACY, LOSS)


class Panel(Block):
    """One plot of a figure: which runs, over what, and what tells its lines apart."""

    title: str
    # `round`, `delay_s`, or a column in which the runs differ: lines if it has numbers, else dots.
    x: str
    y: str = ACCURACY  # of m2fdp.claims.measures.MEASURES
    # For each column its value or a list of values; all runs where it is empty.
    where: dict[str, Any] = Field(default_factory=dict)
    lines: str = ARM  # the column with a line for each value
    log_x: bool = False


class Layout(Block):
    """The panels of a figure, row by row."""

    columns: Annotated[int, Field(ge=1)] = 2
    panels: Annotated[list[Panel], Field(min_length=1)]
    # What axes and legends call a column; by default its own name.
    names: dict[str, str] = Field(default_factory=dict)
