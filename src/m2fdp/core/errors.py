"""The one exception that means "the user asked for something that can't be done", and what is
behind others."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

# In place of the value of a whole block of keys, where a line names some of them.
BLOCK = "(block)"


class InputError(ValueError):
    """Bad input, reported in one line: which key, which value, and what would be valid.

    Everything that checks a user's input raises this type, so that a command line can
    print the line without a traceback and everything else stays a bug.
    """

    def __init__(self, key: str, value: object, remedy: str) -> None:
        self.key, self.value, self.remedy = key, value, remedy
        super().__init__(key, value, remedy)

    def __str__(self) -> str:
        whole = isinstance(self.value, str) and self.value == BLOCK
        place = self.key if whole else f"{self.key} = {self.value!r}"
        line = f"{place}: {self.remedy}"
        return "".join(character if character.isprintable() else " " for character in line)


def among(word: object, known: Iterable[object], none: str = "(none)") -> str:
    """The names that are known, in one line, and which of them a word is probably meant for."""
    names = [str(name) for name in known]
    return (", ".join(names) or none) + did_you_mean(word, names)


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """The end of a line on a word that is none of some names; empty where it is like none.

    Numbers are near each other by value, not by spelling.
    """
    by_spelling = {name.casefold(): name for name in names}
    spelled = str(word).casefold()
    near = get_close_matches(spelled, by_spelling, n=1) if spelled.upper() != spelled else []
    return f"; did you mean {by_spelling[near[0]]}?" if near else ""


def one_line(error: BaseException) -> str:
    """What an error is and says, without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from, the innermost last, each once: chains may be rings."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
