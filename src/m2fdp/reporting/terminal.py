"""What tables in the terminal share: a title, texts to the left, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text


def new_table(
    title: str,
    texts: Sequence[str] = (),
    numbers: Sequence[str] = (),
    caption: str | None = None,
    digits: int = 0,
) -> Table:
    """A table without rows.

    Args:
        title: what stands above it, as it is: no markup.
        texts: the names of the first columns.
        numbers: the names of the others, which never wrap.
        caption: what stands below it, as it is; None = nothing.
        digits: characters that a number has room for in the narrowest terminal.
    """
    note = None if caption is None else Text(caption)
    table = Table(title=Text(title), title_justify="left", caption=note, caption_justify="left")
    for name in texts:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True, min_width=max(len(name), digits))
    return table


def show(what: RenderableType, console: Console | None = None) -> None:
    """Print it whole, however narrow the terminal.

    Args:
        console: what prints it; None = one of standard output.
    """
    (console or Console(highlight=False)).print(what, crop=False)
