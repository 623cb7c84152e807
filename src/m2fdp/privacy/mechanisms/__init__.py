"""The mechanisms, one object each, and the values that they are made of."""

from __future__ import annotations

from m2fdp.errors import InputError
from m2fdp.privacy.mechanisms.base import (
    Clipping,
    LockStep,
    Mechanism,
    Noise,
    silence,
    step_alone,
    step_together,
)
from m2fdp.privacy.mechanisms.gradient import Gradient
from m2fdp.privacy.mechanisms.upload import Upload
from m2fdp.privacy.mechanisms.weights import Weights

MECHANISMS: dict[str, Mechanism] = {
    mechanism.name: mechanism for mechanism in (Gradient(), Upload(), Weights())
}

__all__ = [
    "MECHANISMS",
    "Clipping",
    "LockStep",
    "Mechanism",
    "Noise",
    "get_mechanism",
    "silence",
    "step_alone",
    "step_together",
]


def get_mechanism(name: str) -> Mechanism:
    """The mechanism of that name.

    Raises:
        InputError: there is none.
    """
    if name not in MECHANISMS:
        raise InputError(
            "privacy.mechanism", name, f"is unknown; valid are {', '.join(MECHANISMS)}"
        )
    return MECHANISMS[name]
