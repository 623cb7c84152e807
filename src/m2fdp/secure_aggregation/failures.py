# ruff: noqa: N818 (named as the events that they are)
"""How a round of the protocol can end without a sum, or without a member: a type each.

No text names a value of a vector, a sum or a share.
"""

from m2fdp.core.errors import InputError


class BelowThreshold(InputError):
    """Fewer members of a group are left than t: the round has no sum, not even a partial one."""

    def __init__(self, group: str, alive: int, threshold: int) -> None:
        self.group, self.alive, self.threshold = group, alive, threshold
        super().__init__(
            "secure_aggregation.threshold",
            threshold,
            f"{alive} senders are left in {group}: a lower threshold (above half of them), fewer "
            "dropouts",
        )


class ProtocolError(Exception):
    """Somebody does not do what the protocol says."""


class _OfMember(ProtocolError):
    """What one member does, or is asked for, and why not."""

    what = "member {}"

    def __init__(self, member: int, reason: str) -> None:
        self.member, self.reason = member, reason
        super().__init__(f"{self.what.format(member)}: {reason}")


class KeyRefused(_OfMember):
    """A public key that no honest member has: somebody else's too, or one of low order."""

    what = "the keys of member {}"


class InputRefused(_OfMember):
    """A member does not mask what it has; to the others it falls silent."""

    what = "the input of member {}"


class MessageRefused(_OfMember):
    """A message to the server of somebody who was not asked for it, or has sent it, or that is not
    what was asked for: the round ends."""

    what = "the message of member {}"


class UnmaskRefused(_OfMember):
    """A member gives no shares: the request would show more than one sum of enough members."""

    what = "member {} unmasks nothing"


class TamperedShare(ProtocolError):
    """A sealed share is not what its sender sealed: the round ends."""

    def __init__(self, sender: int, recipient: int) -> None:
        self.sender, self.recipient = sender, recipient
        super().__init__(f"the share that member {sender} sealed for member {recipient}")


class OutOfTurn(ProtocolError):
    """A party is asked for a step that it has done, or not come to; keys and masks serve once."""


class SharesDisagree(ProtocolError):
    """The shares of one secret are not of one polynomial, or not of that secret."""
