"""Numbers as people read them; a bound is always rounded to the side on which it stays true."""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

WORTH_LITTLE = 10  # an epsilon
# What a promise's epsilon is called in a run's files and metrics, by its guarantee.
EPSILON_NAMES = {"verified": "epsilon_verified", "conditional": "epsilon_conditional"}
GUARANTEES = ("none", "conditional", "verified")  # the lowest first


def promised_epsilon(promise: Mapping[str, Any]) -> float:
    """The epsilon of a run's files or metrics, whatever its guarantee; NaN where there is none."""
    values = [float(promise[name]) for name in EPSILON_NAMES.values() if name in promise]
    return next((value for value in values if not math.isnan(value)), math.nan)


def lowest(guarantees: Iterable[str]) -> str:
    """The guarantee of several runs together; what nobody knows counts as conditional."""
    ranked = [each if each in GUARANTEES else "conditional" for each in guarantees]
    return min(ranked, key=GUARANTEES.index, default="conditional")


def for_json(value: float) -> float | str:
    """A number, or the text "inf" for an infinite one, which JSON has no number for."""
    return value if math.isfinite(value) else "inf"


def counted(n: int, noun: str, several: str | None = None) -> str:
    """So many of them: `1 round`, `2,000 rounds`; `several` where the plural has no plain s."""
    return f"{n:,} {noun if n == 1 else several or f'{noun}s'}"


def hardly_protects(epsilon: float) -> str:
    """A sentence on an epsilon that is kept and worth little; empty for others."""
    if not epsilon > WORTH_LITTLE:
        return ""
    return (
        f"ε {upper_bound(epsilon)} hardly protects anyone: what is seen may be e^ε times as likely "
        f"with a record as without it; ε above {WORTH_LITTLE} is worth little, near 1 much"
    )


def some_of(things: Sequence[object]) -> str:
    """The first eight of them, and how many there are."""
    some = ", ".join(map(str, things[:8]))
    return some if len(things) <= 8 else f"{some}, … ({len(things)} in all)"


def upper_bound(value: float, digits: int = 3) -> str:
    """A bound in so many significant digits, rounded up: what is shown is never too small."""
    return _rounded(value, digits, ROUND_CEILING)


def lower_bound(value: float, digits: int = 3) -> str:
    """A bound in so many significant digits, rounded down: what is shown is never too large."""
    return _rounded(value, digits, ROUND_FLOOR)


def nominal(epsilon: float) -> str:
    """An epsilon that is asked for."""
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


def verified(privacy: str, epsilon: float) -> str:
    """An epsilon that is proven, as the upper bound that it is; conditional ones are marked."""
    if privacy == "none":
        return "none"
    return upper_bound(epsilon) + (" cond." if privacy == "conditional" else "")


def quantity(value: float) -> str:
    """An energy or a delay in three digits, or whole; a dash where there is none."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def parameter(value: object) -> str:
    """A swept parameter's value; a dash where the run has none."""
    if isinstance(value, float):
        return "–" if math.isnan(value) else f"{value:g}"
    return str(value)


def in_yaml(value: Any) -> str:
    """A value on one line, such that YAML reads the same."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        mantissa, e, exponent = repr(value).partition("e")
        return f"{float(mantissa)}e{int(exponent):+d}" if e else mantissa
    if isinstance(value, list):
        return f"[{', '.join(map(in_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {in_yaml(inner)}' for key, inner in value.items())}}}"
    return str(value)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if math.isinf(value):
        return "∞"
    rounded = Context(prec=digits, rounding=rounding).plus(Decimal(value))
    if rounded and not -4 <= rounded.adjusted() <= 6:
        return f"{rounded:e}"
    return f"{rounded:f}"


def duration(seconds: float) -> str:
    """Seconds below two minutes, else minutes, and hours from two on."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
