"""What tables look like in a terminal."""

import io

from rich.console import Console


def printed(show, *content, width: int = 80) -> list[str]:
    """The lines that `show` prints of its content."""
    console = Console(file=io.StringIO(), width=width)
    show(content[0], console, *content[1:])
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def words(lines: list[str]) -> str:
    """The lines as one."""
    return " ".join(" ".join(lines).split())


def cells_of(lines: list[str]) -> list[list[str]]:
    """The rows of a table."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if "│" in line]
