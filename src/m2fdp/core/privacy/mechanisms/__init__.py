"""The mechanisms, one object each, and the values that they are made of."""

from __future__ import annotations

from m2fdp.core import own_code
from m2fdp.core.errors import InputError, among
from m2fdp.core.privacy.mechanisms.base import (
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
from m2fdp.core.rooms import Catalogue

MECHANISMS: Catalogue[Mechanism] = Catalogue(
    "mechanisms",
    {
        "gradient": "m2fdp.core.privacy.mechanisms.gradient:GRADIENT",
        "upload": "m2fdp.core.privacy.mechanisms.upload:UPLOAD",
    },
)

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
