"""The mechanisms, one object each, and the values that they are made of."""

from m2fdp.core import own_code
from m2fdp.core.errors import InputError, among
from m2fdp.core.privacy.mechanisms.base import Clipping as Clipping
from m2fdp.core.privacy.mechanisms.base import LockStep as LockStep
from m2fdp.core.privacy.mechanisms.base import Mechanism as Mechanism
from m2fdp.core.privacy.mechanisms.base import Noise as Noise
from m2fdp.core.privacy.mechanisms.base import Protection as Protection
from m2fdp.core.privacy.mechanisms.base import lock_step_of as lock_step_of
from m2fdp.core.privacy.mechanisms.base import silence as silence
from m2fdp.core.privacy.mechanisms.base import step_alone as step_alone
from m2fdp.core.privacy.mechanisms.base import step_together as step_together
from m2fdp.core.rooms import Catalogue

MECHANISMS: Catalogue[Mechanism] = Catalogue(
    "mechanisms",
    {
        "gradient": "m2fdp.core.privacy.mechanisms.gradient:GRADIENT",
        "upload": "m2fdp.core.privacy.mechanisms.upload:UPLOAD",
    },
)


def get_mechanism(name: str) -> Mechanism:
    """The mechanism of that name, or the user's own of a name `package.module:NAME`.

    Raises:
        InputError: there is none.
    """
    if own_code.is_own(name):
        own: Mechanism = own_code.load("privacy.mechanism", name, Mechanism)
        return own
    if name not in MECHANISMS:
        valid = among(name, [*MECHANISMS, own_code.FORM])
        raise InputError("privacy.mechanism", name, f"is unknown; valid are {valid}")
    return MECHANISMS[name]
