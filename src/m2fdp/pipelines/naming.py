"""Nodes that are called as what they do is."""

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from kedro.pipeline import Node

from m2fdp.reporting.pictures import Drawing


def node(
    function: Callable[..., Any],
    inputs: str | list[str],
    outputs: str | list[str] | None,
    name: str | None = None,
) -> Node:
    """A node of a pipeline."""
    return Node(function, inputs, outputs, name=name or function.__name__)


def drawing(draw: Callable[..., Any], inputs: str | list[str], output: str, name: str) -> Node:
    """A node that leaves a figure to be drawn when it is saved."""
    # Kedro warns of a function without a name.
    return node(update_wrapper(partial(Drawing.of, draw), draw), inputs, output, name)
