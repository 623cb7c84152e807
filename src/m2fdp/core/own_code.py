"""A user's own code, named as `package.module:name`. A room finds, loads and guards it."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from m2fdp.core.rooms import Catalogue

FORM = "package.module:function"
# Functions of rooms: by the key that names own code, and by what else a user gives.
OWN: Catalogue[Callable[..., Any]] = Catalogue("own", {})
GIVEN: Catalogue[Callable[..., Any]] = Catalogue("given", {})


def is_own(name: str) -> bool:
    """Whether a name is meant as that of the user's own code."""
    return ":" in name


def is_ours(thing: object) -> bool:
    """Whether the class of a thing is this project's, whatever it calls itself."""
    kind = type(thing)
    module = sys.modules.get(kind.__module__)
    is_module_ours = kind.__module__.split(".")[0] == __name__.split(".")[0]
    return is_module_ours and getattr(module, kind.__qualname__, None) is kind


def load(key: str, name: str, kind: type | None = None) -> Any:
    """See `m2fdp.given.own_code.load`."""
    return GIVEN["code"](key, name, kind)


def guarded(key: str, name: str, what: str) -> AbstractContextManager[None]:
    """See `m2fdp.given.own_code.guarded`."""
    return GIVEN["guard"](key, name, what)
