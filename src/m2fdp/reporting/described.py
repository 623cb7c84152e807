"""A described table: its columns in the terminal, its labels by client as a picture."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from m2fdp.reporting import figures
from m2fdp.tables.describe import Description

PICTURE = "labels.png"


def print_columns(described: Description) -> None:
    """A row a column: what it is taken for, and what is empty."""
    table = Table(title=f"{described.n_rows:,} rows, {len(described.columns)} columns")
    for heading in ("column", "taken for", "in the schema"):
        table.add_column(heading, overflow="fold")
    for heading in ("empty", "distinct"):
        table.add_column(heading, justify="right")
    for column in described.columns:
        counts = f"{column.empty:,}", f"{column.distinct:,}"
        table.add_row(column.name, column.kind, column.read, *counts)
    Console().print(table)


def save_labels(described: Description, folder: Path) -> Path:
    """Draw how many records of each class, or tenth of the label's range, every client has."""
    path = folder / PICTURE
    figures.label_distribution(described.counts).savefig(path)
    return path
