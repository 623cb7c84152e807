"""The messages of a sum that hides its terms, as bytes: numbered parts, by member's number. What
unpacks one raises `NoMessage` where they are none."""

import struct
from collections.abc import Iterable, Mapping

import numpy as np

from m2fdp.deployment.links import Kind
from m2fdp.secure_aggregation.keys import KEY_BYTES
from m2fdp.secure_aggregation.messages import (
    MaskedVector,
    ProtocolError,
    PublicKeys,
    UnmaskRequest,
    UnmaskShares,
)

# Number of a member, or of a field; how many bytes follow.
_PART = struct.Struct("<II")
# Bytes of a sender, at most, in what others are asked: its keys with signature and certificate, a
# signature, or what it has sealed for one.
OF_SENDER = 2**12
_SURVIVED, _SILENT = b"+", b"-"


class NoMessage(ProtocolError):  # noqa: N818 (named as the event that it is)
    """Bytes that are none of the protocol's messages."""

    def __init__(self, what: str) -> None:
        super().__init__(f"bytes that are no {what}")


def pack(parts: Iterable[tuple[int, bytes]]) -> bytes:
    """Numbered parts, one after the other."""
    return b"".join(_PART.pack(number, len(part)) + part for number, part in parts)


def unpack(content: bytes, what: str) -> dict[int, bytes]:
    """The parts by number, in order; `NoMessage` of that name where they are none, or two have one
    number."""
    parts: dict[int, bytes] = {}
    start = 0
    while (at := start + _PART.size) <= len(content):
        number, size = _PART.unpack_from(content, start)
        start = at + size
        if start > len(content) or number in parts:
            raise NoMessage(what)
        parts[number] = content[at:start]
    if start != len(content):
        raise NoMessage(what)
    return parts


def pack_keys(keys: PublicKeys, signature: bytes, certificate: bytes) -> bytes:
    """A member's public keys, its signature of them, and its certificate in PEM."""
    return pack(enumerate((keys.sealing + keys.masking, signature, certificate)))


def unpack_keys(sender: int, content: bytes) -> tuple[PublicKeys, bytes, bytes]:
    """What `pack_keys` packed."""
    parts = unpack(content, "keys")
    if list(parts) != [0, 1, 2] or len(parts[0]) != 2 * KEY_BYTES:
        raise NoMessage("keys")
    keys = PublicKeys(sender, parts[0][:KEY_BYTES], parts[0][KEY_BYTES:])
    return keys, parts[1], parts[2]


def pack_words(vector: MaskedVector) -> bytes:
    """Masked words, little endian."""
    return vector.words.astype("<u4", copy=False).tobytes()


def unpack_words(sender: int, content: bytes) -> MaskedVector:
    """What `pack_words` packed."""
    if len(content) % 4:
        raise NoMessage("masked words")
    return MaskedVector(sender, np.frombuffer(content, "<u4").astype(np.uint32, copy=False))


def pack_request(request: UnmaskRequest) -> bytes:
    """Who survived and who did not, in order of their numbers."""
    states = dict.fromkeys(request.survivors, _SURVIVED) | dict.fromkeys(request.silent, _SILENT)
    return pack(sorted(states.items()))


def unpack_request(content: bytes) -> UnmaskRequest:
    """What `pack_request` packed."""
    states = unpack(content, "list of survivors")
    if not set(states.values()) <= {_SURVIVED, _SILENT}:
        raise NoMessage("list of survivors")
    survivors, silent = (
        tuple(u for u, state in states.items() if state == which) for which in (_SURVIVED, _SILENT)
    )
    return UnmaskRequest(survivors, silent)


def check_answer(kind: Kind, content: bytes, n_parameters: int) -> None:
    """Raise `NoMessage` where a child's answer has not the form of its kind."""
    passed_on: Iterable[bytes] = ()
    match kind:
        case "keys":
            passed_on = (content,)
            unpack_keys(0, content)
        case "shares" | "unmasking":
            passed_on = unpack(content, "shares").values()
        case "survivors":
            passed_on = (content,)
        case _:
            numbers = np.frombuffer(content, "<f4") if len(content) == 4 * n_parameters else None
            if numbers is None or (kind != "masked" and not np.isfinite(numbers).all()):
                raise NoMessage(f"model of {n_parameters} finite numbers")
    if any(len(part) + _PART.size > OF_SENDER for part in passed_on):
        raise NoMessage(f"{kind} of at most {OF_SENDER} bytes")


def pack_unmasking(shares: UnmaskShares) -> bytes:
    """A share of the one secret of each member that was asked about."""
    held: Mapping[int, bytes] = {**shares.own_masks, **shares.masking_keys}
    return pack(sorted(held.items()))


def unpack_unmasking(sender: int, content: bytes, request: UnmaskRequest) -> UnmaskShares:
    """Shares, of what the request has asked for."""
    held = unpack(content, "shares")
    if set(held) != {*request.survivors, *request.silent}:
        raise NoMessage("shares of those who were asked about")
    return UnmaskShares(
        sender, {u: held[u] for u in request.survivors}, {u: held[u] for u in request.silent}
    )
