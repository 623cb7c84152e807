"""What an attack hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m2fdp.adversaries.membership import Membership
    from m2fdp.adversaries.reconstruction import Reconstruction


@dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack has taken.

    Attributes:
        record: all of it, for JSON; infinite numbers are the text "inf". `metrics` are its numbers
            by name, `note` what must stand beside them.
        reconstructions: results of messages, in order; none of lira.
        memberships: results by the observer's kind; none of a reconstruction.
    """

    record: Mapping[str, Any]
    reconstructions: tuple[Reconstruction, ...] = ()
    memberships: Mapping[str, Membership] | None = None
