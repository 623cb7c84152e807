"""What a row of the table of pairs is, and how the table is walked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from m2fdp.config import Block
from m2fdp.errors import BLOCK, InputError
from m2fdp.experiments.request import Request

# Nothing, or what a row's text names: its placeholders, and `shown` in place of the key's value.
Found = bool | Mapping[str, object] | None


@dataclass(frozen=True)
class Pair:
    """Two things that do not go together.

    Attributes:
        key: dotted key of the value that is refused, or of a block.
        values: which values of it, in words.
        beside: what they do not go with: keys and values, or a property of the algorithm, in words.
        clashes: whether both are there; details, where the text names some.
        text: what is wrong and what to use, with placeholders {…} for details, and {algorithm}.
    """

    key: str
    values: str
    beside: str
    clashes: Callable[[Request], Found]
    text: str


def shown(value: object | None) -> Found:
    """That something is there, with this value in place of the key's; None where it is not."""
    return None if value is None else {"shown": value}


def rows_where(applies: Callable[[Request], bool], usually_beside: str) -> Callable[..., Pair]:
    """Makes rows of runs of which something holds: (key, values, clashes, text, beside).

    Args:
        applies: whether it does; only then `clashes` is asked.
        usually_beside: what such a row stands beside, unless it says something else.
    """

    def row(
        key: str,
        values: str,
        clashes: Callable[[Request], Found],
        text: str,
        beside: str = usually_beside,
    ) -> Pair:
        return Pair(
            key, values, beside, lambda request: applies(request) and clashes(request), text
        )

    return row


def first_clash(pairs: Iterable[Pair], request: Request) -> tuple[Pair, InputError] | None:
    """The first row that applies, and its line."""
    for pair in pairs:
        found = pair.clashes(request)
        if found:
            details = dict(found) if isinstance(found, Mapping) else {}
            value = details.pop("shown", request.value(pair.key))
            text = pair.text.format(algorithm=request.config.algorithm, **details)
            return pair, InputError(pair.key, BLOCK if isinstance(value, Block) else value, text)
    return None


def refuse_clashes(pairs: Iterable[Pair], request: Request) -> None:
    """Refuse the first row that applies.

    Raises:
        InputError: there is one.
    """
    clash = first_clash(pairs, request)
    if clash is not None:
        raise clash[1]


class _Placeholders(dict[str, str]):
    """Every placeholder by its own name."""

    def __missing__(self, name: str) -> _Placeholder:
        return _Placeholder(f"{{{name}}}")


class _Placeholder(str):
    """A text that no format of a number changes."""

    def __format__(self, spec: str) -> str:
        return self


def table(pairs: Sequence[Pair]) -> str:
    """The rows as a table of Markdown."""
    lines = ["| key | values | does not go with | says |", "|---|---|---|---|"]
    for pair in pairs:
        text = pair.text.format_map(_Placeholders())
        lines.append(f"| `{pair.key}` | {pair.values} | {pair.beside} | {text} |")
    return "\n".join(lines) + "\n"
