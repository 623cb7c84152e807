"""Keys of one round: X25519 pairs, and what two members derive of them.

Whatever is derived is bound to its purpose, to the round and to the group, so that nothing of one
round fits another, even if a device's randomness repeats itself.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from m2fdp.secure_aggregation.failures import KeyRefused, TamperedShare
from m2fdp.secure_aggregation.terms import Terms

KEY_BYTES = 32
COPIED = "shown twice"
_NO_KEY = "of low order, or none"
_FIELD = 2**255 - 19


@dataclass(frozen=True)
class KeyPair:
    """A private key and its public one, 32 bytes."""

    private: X25519PrivateKey = field(repr=False)
    public: bytes

    def secret(self) -> bytes:
        return self.private.private_bytes_raw()


def key_pair(secret: bytes) -> KeyPair:
    """The X25519 keys of 32 secret bytes."""
    private = X25519PrivateKey.from_private_bytes(secret)
    return KeyPair(private, private.public_key().public_bytes_raw())


def agree(pair: KeyPair, public: bytes, owner: int) -> bytes:
    """What only the two owners can compute, 32 bytes: X25519. A public key of low order, by which
    the result would be zero for all, or written as no honest one is, so that two of it look
    different, is a `KeyRefused`."""
    if int.from_bytes(public, "little") >= _FIELD:
        raise KeyRefused(owner, _NO_KEY)
    try:
        return pair.private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise KeyRefused(owner, _NO_KEY) from error


def info(purpose: str, terms: Terms) -> bytes:
    """Purpose, round and group; the lengths keep two different triples from the same bytes."""
    parts = [part.encode() for part in (purpose, terms.label, terms.group.name)]
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def derive(secret: bytes, purpose: str, terms: Terms) -> bytes:
    """A key of 32 bytes for one purpose in one round: HKDF-SHA256."""
    return HKDF(SHA256(), KEY_BYTES, None, info(purpose, terms)).derive(secret)


def seal(key: bytes, sender: int, recipient: int, text: bytes) -> bytes:
    """ChaCha20Poly1305. A key of one round seals one text in each direction, its nonce's ids."""
    return ChaCha20Poly1305(key).encrypt(_nonce(sender, recipient), text, None)


def unseal(key: bytes, sender: int, recipient: int, sealed: bytes) -> bytes:
    """A `TamperedShare` where it is not what the sender sealed for this recipient."""
    try:
        return ChaCha20Poly1305(key).decrypt(_nonce(sender, recipient), sealed, None)
    except InvalidTag as error:
        raise TamperedShare(sender, recipient) from error


def copied(public: Mapping[int, tuple[bytes, ...]]) -> list[int]:
    """The members with a public key that is shown twice; who has copied it can't be told."""
    times = Counter(key for pair in public.values() for key in pair)
    return [member for member, pair in public.items() if any(times[key] > 1 for key in pair)]


def refused_keys(public: Mapping[int, tuple[bytes, ...]]) -> dict[int, str]:
    """By member, why its public keys are refused."""
    refused = dict.fromkeys(copied(public), COPIED)
    for member, pair in public.items():
        try:
            for key in pair:
                agree(_PROBE, key, member)
        except KeyRefused as error:
            refused[member] = error.reason
    return refused


def _nonce(sender: int, recipient: int) -> bytes:
    return sender.to_bytes(4) + recipient.to_bytes(4) + bytes(4)


# Any private key finds the public ones of low order; this one protects nothing.
_PROBE = key_pair(bytes(range(KEY_BYTES)))
