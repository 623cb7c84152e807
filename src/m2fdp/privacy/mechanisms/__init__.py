"""The mechanisms, one object each, and the values that they are made of."""

from __future__ import annotations

from m2fdp import own_code
from m2fdp.errors import InputError, among
from m2fdp.privacy.mechanisms.base import (
    Clipping,
    LockStep,
    Mechanism,
    Noise,
    Protection,
    lock_step_of,
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
    "Protection",
    "get_mechanism",
    "lock_step_of",
    "silence",
    "step_alone",
    "step_together",
]


def get_mechanism(name: str) -> Mechanism:
    """The mechanism of that name, or the user's own of a name `package.module:NAME`.

    Raises:
        InputError: there is none.
    """
    if own_code.is_own(name):
        mechanism: Mechanism = own_code.load("privacy.mechanism", name, Mechanism)
        return mechanism
    if name not in MECHANISMS:
        valid = among(name, [*MECHANISMS, own_code.FORM])
        raise InputError("privacy.mechanism", name, f"is unknown; valid are {valid}")
    return MECHANISMS[name]
