"""Who nodes are: certificates that an authority signs, and signatures under them.

A folder of keys holds a node's own key `NAME.key`, its certificate `NAME.pem`, and the authority's
certificate `authority.pem`. The authority's key stays where it is: whoever has it can be any node.
"""

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
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
    """A node's own keys, in PEM."""

    name: str
    key: bytes
    certificate: bytes
    authority: bytes

    def sign(self, content: bytes) -> bytes:
        """A signature that the certificate verifies."""
        return _private(self.key).sign(content, _SIGNATURE)


def check_name(name: str) -> None:
    """Refuse a name that no certificate can hold."""
    if not _NAME.fullmatch(name):
        valid = "letters, digits, - and ., at most 63, with a letter or digit at both ends"
        raise InputError("node", name, f"is no name of a certificate; valid: {valid}")


def make_authority(folder: Path) -> None:
    """A key and a certificate of an authority, in a folder that has none."""
    if (folder / f"{AUTHORITY}.key").exists():
        raise InputError("keys authority", shown(folder), "has an authority; name another folder")
    key, name = _make_key(folder / f"{AUTHORITY}.key"), _subject(AUTHORITY)
    root = x509.BasicConstraints(ca=True, path_length=0)
    made = _signed(name, key.public_key(), 10 * _DAYS, (name, key), root)
    _write(folder / f"{AUTHORITY}.pem", made)


def request(name: str, folder: Path) -> Path:
    """A key of a node that has none there, and the request `NAME.csr` for its certificate."""
    check_name(name)
    if (folder / f"{name}.key").exists():
        problem = "is there; a node has one key, and two of one name are two nodes"
        raise InputError("keys request", shown(folder / f"{name}.key"), problem)
    key = _make_key(folder / f"{name}.key")
    asked = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    path = folder / f"{name}.csr"
    _write(path, asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


def sign(path: Path, folder: Path, days: int = _DAYS) -> Path:
    """The certificate of a request, beside it, with the authority's own, whose folder it is."""
    try:
        asked = x509.load_pem_x509_csr(path.read_bytes())
    except (OSError, ValueError):
        problem = "is no request of `m2fdp keys request`"
        raise InputError("keys sign", shown(path), problem) from None
    name = _name_in(asked.subject)
    check_name(name)
    if not asked.is_signature_valid or name == AUTHORITY:
        raise InputError("keys sign", shown(path), f"is no request that {name} can make")
    authority = _read(folder / f"{AUTHORITY}.pem")
    issuer = x509.load_pem_x509_certificate(authority).subject
    by = issuer, _private(_read(folder / f"{AUTHORITY}.key"))
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    of_host = x509.SubjectAlternativeName([x509.DNSName(name)]), x509.ExtendedKeyUsage(usages)
    target = path.with_suffix(".pem")
    _write(target, _signed(asked.subject, asked.public_key(), days, by, *of_host))
    copy_authority(folder, path.parent)
    return target


def copy_authority(folder: Path, to: Path) -> None:
    """The authority's certificate, whose folder it is, for a node's folder of keys."""
    _write(to / f"{AUTHORITY}.pem", _read(folder / f"{AUTHORITY}.pem"))


def read_identity(name: str, folder: Path) -> Identity:
    """A node's keys; an `InputError` where they are not there, of another node or authority, or
    have expired."""
    check_name(name)
    file = folder / f"{name}.pem"
    identity = Identity(
        name, _read(folder / f"{name}.key"), _read(file), _read(folder / f"{AUTHORITY}.pem")
    )
    if (wrong := fault(identity.certificate, identity.authority, name)) is not None:
        raise InputError("keys", shown(file), f"{wrong}; have a request signed anew")
    public = x509.load_pem_x509_certificate(identity.certificate).public_key()
    if public != _private(identity.key).public_key():
        raise InputError("keys", shown(file), f"is of another key than {name}.key beside it")
    return identity


def fault(certificate: bytes, authority: bytes, name: str) -> str | None:
    """What is wrong with a certificate that somebody shows as a node's, by an authority; None =
    nothing."""
    try:
        shown_one = x509.load_pem_x509_certificate(certificate)
        shown_one.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return "is not signed by this node's authority"
    if name_of(certificate) != name:
        return f"is the certificate of {name_of(certificate)}, not of {name}"
    begins, ends = shown_one.not_valid_before_utc, shown_one.not_valid_after_utc
    if datetime.now(UTC) < begins:
        return f"is valid from {begins:%Y-%m-%d %H:%M} UTC on, later than this host's clock"
    if datetime.now(UTC) > ends:
        return f"was valid until {ends:%Y-%m-%d %H:%M} UTC"
    return None


def name_of(certificate: bytes) -> str:
    """The node that a certificate names."""
    return _name_in(x509.load_pem_x509_certificate(certificate).subject)


def same(one: bytes, other: bytes) -> bool:
    """Whether two are one certificate."""
    try:
        return x509.load_pem_x509_certificate(one) == x509.load_pem_x509_certificate(other)
    except ValueError:
        return False


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
    """The authority's signature of a content."""
    return _private(_read(folder / f"{AUTHORITY}.key")).sign(content, _SIGNATURE)


def _signed(
    subject: x509.Name,
    public: object,
    days: int,
    by: tuple[x509.Name, ec.EllipticCurvePrivateKey],
    *extensions: x509.ExtensionType,
) -> bytes:
    """A certificate in PEM, by an issuer and its key."""
    now = datetime.now(UTC)
    built = x509.CertificateBuilder().subject_name(subject).issuer_name(by[0])
    built = built.public_key(public).serial_number(x509.random_serial_number())  # type: ignore[arg-type]
    built = built.not_valid_before(now - timedelta(minutes=5))  # clocks differ
    built = built.not_valid_after(now + timedelta(days=days))
    for extension in extensions:
        built = built.add_extension(extension, isinstance(extension, x509.BasicConstraints))
    return built.sign(by[1], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name_in(subject: x509.Name) -> str:
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _make_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    form, nothing = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    _write(path, key.private_bytes(serialization.Encoding.PEM, form, nothing))
    return key


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except ValueError:
        raise InputError("keys", "(a key)", "is damaged; make a new one") from None
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise InputError("keys", shown(path), "can't be read; see m2fdp keys --help") from None


def _write(path: Path, content: bytes) -> None:
    """A file; a key nobody but its owner may read, from its first moment on."""
    mode = 0o600 if path.suffix == ".key" else 0o644
    with replacing(path) as unfinished:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
