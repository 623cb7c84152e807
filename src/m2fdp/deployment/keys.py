"""Who nodes are: certificates that an authority signs, and signatures under them.

A folder of keys holds a node's own key `NAME.key`, its certificate `NAME.pem`, and the authority's
certificate `authority.pem`. The authority's key stays where it is: whoever has it can be any node.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing, shown

AUTHORITY = "authority"
_DAYS = 365
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_SIGNATURE = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True, eq=False)
class Identity:
    """A node's own keys.

    Attributes:
        key, certificate, authority: in PEM.
    """

    name: str
    key: bytes
    certificate: bytes
    authority: bytes

    def sign(self, content: bytes) -> bytes:
        """A signature that the certificate verifies."""
        return _private(self.key).sign(content, _SIGNATURE)


def check_name(name: str) -> None:
    """Refuse a name that no certificate can hold.

    Raises:
        InputError: it is one.
    """
    if not _NAME.fullmatch(name):
        valid = "letters, digits, - and ., at most 63, with a letter or digit at both ends"
        raise InputError("node", name, f"is no name of a certificate; valid: {valid}")


def make_authority(folder: Path) -> None:
    """A key and a certificate of an authority, in a folder.

    Raises:
        InputError: there is one.
    """
    if (folder / f"{AUTHORITY}.key").exists():
        raise InputError("keys authority", shown(folder), "has an authority; name another folder")
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject(AUTHORITY)
    built = _builder(name, name, key.public_key(), 10 * _DAYS)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    _write_secret(folder / f"{AUTHORITY}.key", _pem_of(key))
    _write(folder / f"{AUTHORITY}.pem", _pem(built.sign(key, hashes.SHA256())))


def request(name: str, folder: Path) -> Path:
    """A key of a node, and the request `NAME.csr` for its certificate.

    Raises:
        InputError: no name of a certificate, or the node has a key there.
    """
    check_name(name)
    if (folder / f"{name}.key").exists():
        problem = "is there; a node has one key, and two of one name are two nodes"
        raise InputError("keys request", shown(folder / f"{name}.key"), problem)
    key = ec.generate_private_key(ec.SECP256R1())
    asked = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    _write_secret(folder / f"{name}.key", _pem_of(key))
    path = folder / f"{name}.csr"
    _write(path, asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


def sign(path: Path, folder: Path, days: int = _DAYS) -> Path:
    """The certificate of a request, beside it, with the authority's own.

    Args:
        folder: the authority's.

    Raises:
        InputError: no request, or no authority.
    """
    try:
        asked = x509.load_pem_x509_csr(path.read_bytes())
    except (OSError, ValueError):
        raise InputError(
            "keys sign", shown(path), "is no request of `m2fdp keys request`"
        ) from None
    name = str(asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    check_name(name)
    if not asked.is_signature_valid or name == AUTHORITY:
        raise InputError("keys sign", shown(path), f"is no request that {name} can make")
    authority = _read(folder / f"{AUTHORITY}.pem")
    issuer = x509.load_pem_x509_certificate(authority).subject
    built = _builder(asked.subject, issuer, asked.public_key(), days)
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    built = built.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    signed = built.sign(_private(_read(folder / f"{AUTHORITY}.key")), hashes.SHA256())
    target = path.with_suffix(".pem")
    _write(target, _pem(signed))
    _write(path.parent / f"{AUTHORITY}.pem", authority)
    return target


def read_identity(name: str, folder: Path) -> Identity:
    """A node's keys.

    Raises:
        InputError: they are not there, of another node, of another authority, or have expired.
    """
    check_name(name)
    pem, authority = _read(folder / f"{name}.pem"), _read(folder / f"{AUTHORITY}.pem")
    identity = Identity(name, _read(folder / f"{name}.key"), pem, authority)
    certificate, issuer = (x509.load_pem_x509_certificate(each) for each in (pem, authority))
    shown_at = shown(folder / f"{name}.pem")
    if name_of(pem) != name:
        raise InputError("keys", shown_at, f"is the certificate of {name_of(pem)}, not of {name}")
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        problem = f"is not signed by {shown(folder / f'{AUTHORITY}.pem')}; have it signed anew"
        raise InputError("keys", shown_at, problem) from None
    if not certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc:
        until = f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        raise InputError("keys", shown_at, f"was valid until {until}; have a request signed anew")
    public = _private(identity.key).public_key()
    if certificate.public_key() != public:
        raise InputError("keys", shown_at, f"is of another key than {name}.key beside it")
    return identity


def issued(certificate: bytes, authority: bytes, name: str) -> bool:
    """Whether a certificate that somebody shows is that of a node, by an authority, and valid."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate)
        loaded.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (InvalidSignature, ValueError, TypeError):
        return False
    valid = loaded.not_valid_before_utc <= datetime.now(UTC) <= loaded.not_valid_after_utc
    return valid and name_of(certificate) == name


def name_of(certificate: bytes) -> str:
    """Whose certificate it is."""
    subject = x509.load_pem_x509_certificate(certificate).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def verify(certificate: bytes, signature: bytes, content: bytes) -> bool:
    """Whether content is signed by the certificate's key."""
    public = x509.load_pem_x509_certificate(certificate).public_key()
    try:
        assert isinstance(public, ec.EllipticCurvePublicKey)
        public.verify(signature, content, _SIGNATURE)
    except (InvalidSignature, AssertionError):
        return False
    return True


def sign_as_authority(folder: Path, content: bytes) -> bytes:
    """A signature of the authority's."""
    return _private(_read(folder / f"{AUTHORITY}.key")).sign(content, _SIGNATURE)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: object, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)  # type: ignore[arg-type]  # of any kind that there is
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except ValueError:
        raise InputError("keys", "(a key)", "is damaged; make a new one") from None
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise InputError("keys", shown(path), "can't be read; see m2fdp keys --help") from None


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as unfinished:
        unfinished.write_bytes(content)


def _write_secret(path: Path, content: bytes) -> None:
    """A file that nobody but its owner may read, from its first moment on."""
    with replacing(path) as unfinished:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
