"""Who nodes are: certificates that an authority signs, and signatures under them.

A folder of keys holds a node's own key `NAME.key`, its certificate `NAME.pem`, and the authority's
certificate `authority.pem`. The authority's key stays where it is: whoever has it can be any node.
`revoked.json`, if it is there, is a list that the authority has signed: certificates of those names
from before those times are no one's any more. Its number grows with each.
"""

import base64
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing, shown

AUTHORITY = "authority"
REVOKED = "revoked.json"
_DAYS = 365
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_SIGNATURE = ec.ECDSA(hashes.SHA256())


@dataclass(eq=False)
class Identity:
    """A node's own keys, in PEM, as its folder had them when they were last read. Of names that
    have revoked certificates it knows from when on others hold."""

    name: str
    key: bytes
    certificate: bytes
    authority: bytes
    folder: Path | None = None
    kept: Path | None = None  # the newest list that was seen, which no older one replaces
    number: int = 0
    since: Mapping[str, str] = field(default_factory=dict)
    _said: str = ""
    _refused: tuple[bytes, ...] = ()  # what lay in the folder and was not taken
    _lock: Lock = field(default_factory=Lock)

    def sign(self, content: bytes) -> bytes:
        """A signature that the certificate verifies."""
        return _private(self.key).sign(content, _SIGNATURE)

    def fault(self, certificate: bytes, name: str) -> str | None:
        """See `fault`, and whether it was revoked."""
        if (wrong := fault(certificate, self.authority, name)) is not None:
            return wrong
        begins, since = issued(certificate)[0], self.since.get(name)
        return f"was revoked at {since}" if since and begins.isoformat() < since else None

    def renewed(self) -> bool:
        """Whether another certificate lies in the folder than this one, or one that was refused."""
        return self._lying() not in ((), (self.certificate, self.key), self._refused)

    def _lying(self) -> tuple[bytes, ...]:
        try:
            files = [self.folder / f"{self.name}{end}" for end in (".pem", ".key") if self.folder]
            return tuple(file.read_bytes() for file in files)
        except OSError:  # it is being replaced
            return ()

    def renew(self, tell: Callable[[str], None]) -> bool:
        """Read the folder anew; whether the certificate is another one. Of what can't be taken, a
        line is told once."""
        self.heed(tell)
        if not self.renewed():
            return False
        lying = self._lying()
        try:
            assert self.folder is not None
            found = read_identity(self.name, self.folder)
            if (wrong := self.fault(found.certificate, self.name)) is not None:
                raise InputError("keys", f"{self.name}.pem", wrong)
        except InputError as error:
            self._say(tell, f"{error}; the former one stands")
            self._refused = lying
            return False
        self.key, self.certificate = found.key, found.certificate
        tell(f"this node's certificate is a new one, valid until {ends(self.certificate)}")
        return True

    def heed(self, tell: Callable[[str], None]) -> None:
        """Read the list of revoked certificates anew. Of one by another authority, and of an older
        one, a line is told, and the newest stands."""
        with self._lock:
            for path in (self.kept, self.folder and self.folder / REVOKED):
                if path is None or not path.exists():
                    continue
                try:
                    found = read_signed("revoked", path, self.authority)
                    if int(found["number"]) < self.number:
                        raise InputError("revoked", found["number"], "is older than what is known")
                except InputError as error:
                    self._say(tell, f"{error}; number {self.number} stands")
                    continue
                if int(found["number"]) > self.number:
                    self.number, self.since = int(found["number"]), found["since"]
                    tell(f"{REVOKED}: number {self.number}, on {', '.join(self.since)}")
                    if self.kept is not None:
                        _write(self.kept, path.read_bytes())

    def _say(self, tell: Callable[[str], None], line: str) -> None:
        if line != self._said:
            tell(line)
        self._said = line


def check_name(name: str) -> None:
    """Refuse a name that no certificate can hold."""
    if not _NAME.fullmatch(name) or name == AUTHORITY:
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
    if not asked.is_signature_valid:
        raise InputError("keys sign", shown(path), f"is no request that {name} can make")
    key = _private(_read(folder / f"{AUTHORITY}.key"))
    by = x509.load_pem_x509_certificate(authority_of(folder)).subject, key
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    of_host = x509.SubjectAlternativeName([x509.DNSName(name)]), x509.ExtendedKeyUsage(usages)
    target, since = path.with_suffix(".pem"), _revoked(folder)["since"].get(name)
    _write(target, _signed(asked.subject, asked.public_key(), days, by, *of_host, since=since))
    copy_authority(folder, path.parent)
    return target


def authority_of(folder: Path) -> bytes:
    """The certificate of the authority whose folder it is."""
    return _read(folder / f"{AUTHORITY}.pem")


def copy_authority(folder: Path, to: Path) -> None:
    """The authority's certificate, whose folder it is, for a node's folder of keys."""
    _write(to / f"{AUTHORITY}.pem", authority_of(folder))


def revoke(name: str, folder: Path, out: Path) -> int:
    """A list, in a file, by which no certificate of the name holds that was made until now; its
    number. It is kept in the authority's folder, too."""
    check_name(name)
    before = _revoked(folder)
    since = before["since"] | {name: datetime.now(UTC).replace(microsecond=0).isoformat()}
    revoked = {"number": before["number"] + 1, "since": since}
    for path in (folder / REVOKED, out):
        write_signed("revoked", path, revoked, folder)
    return int(revoked["number"])


def _revoked(folder: Path) -> dict[str, Any]:
    if not (path := folder / REVOKED).exists():
        return {"number": 0, "since": {}}
    return read_signed("revoked", path, authority_of(folder))


def signed_bytes(content: Mapping[str, Any]) -> bytes:
    """What an authority signs of a content that is plain JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def write_signed(kind: str, path: Path, content: Mapping[str, Any], folder: Path) -> None:
    """Write a content with the signature of the authority whose folder it is."""
    by = _private(_read(folder / f"{AUTHORITY}.key"))
    signature = base64.b64encode(by.sign(signed_bytes(content), _SIGNATURE)).decode()
    text = json.dumps({kind: content, "signature": signature}, indent=1, ensure_ascii=False)
    _write(path, f"{text}\n".encode())


def read_signed(kind: str, path: Path, authority: bytes) -> dict[str, Any]:
    """The content that an authority of that certificate has signed."""
    try:
        written = json.loads(path.read_bytes())
        content, signature = dict(written[kind]), base64.b64decode(written["signature"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(kind, shown(path), f"is no file of `m2fdp` that holds a {kind}") from None
    if not verify(authority, signature, signed_bytes(content)):
        problem = f"is not signed by this node's authority; a {kind} that was changed is none"
        raise InputError(kind, shown(path), problem)
    return content


def read_identity(name: str, folder: Path) -> Identity:
    """A node's keys; an `InputError` where they are not there, of another node or authority, or
    have expired."""
    check_name(name)
    file = folder / f"{name}.pem"
    identity = Identity(
        name, _read(folder / f"{name}.key"), _read(file), _read(folder / f"{AUTHORITY}.pem"), folder
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
    begins, last = issued(certificate)
    if datetime.now(UTC) < begins:
        return f"is valid from {begins:%Y-%m-%d %H:%M} UTC on, later than this host's clock"
    return f"was valid until {ends(certificate)}" if datetime.now(UTC) > last else None


def issued(certificate: bytes) -> tuple[datetime, datetime]:
    """From when until when it is valid."""
    one = x509.load_pem_x509_certificate(certificate)
    return one.not_valid_before_utc, one.not_valid_after_utc


def ends(certificate: bytes) -> str:
    """Until when it is valid, in words."""
    return f"{issued(certificate)[1]:%Y-%m-%d %H:%M} UTC"


def name_of(certificate: bytes) -> str:
    """The node that a certificate names."""
    return _name_in(x509.load_pem_x509_certificate(certificate).subject)


def same(one: bytes, other: bytes) -> bool:
    """Whether two certificates are of one key."""
    try:
        first, second = map(x509.load_pem_x509_certificate, (one, other))
    except ValueError:
        return False
    return first.public_key() == second.public_key()


def verify(certificate: bytes, signature: bytes, content: bytes) -> bool:
    """Whether content is signed by the certificate's key."""
    public = x509.load_pem_x509_certificate(certificate).public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey):
        return False
    try:
        public.verify(signature, content, _SIGNATURE)
    except InvalidSignature:
        return False
    return True


def _signed(
    subject: x509.Name,
    public: object,
    days: int,
    by: tuple[x509.Name, ec.EllipticCurvePrivateKey],
    *extensions: x509.ExtensionType,
    since: str | None = None,
) -> bytes:
    """A certificate in PEM, by an issuer and its key; after `since`, if the name has that."""
    now = datetime.now(UTC)
    begins = now - timedelta(minutes=5)  # clocks differ
    built = x509.CertificateBuilder().subject_name(subject).issuer_name(by[0])
    built = built.public_key(public).serial_number(x509.random_serial_number())  # type: ignore[arg-type]
    built = built.not_valid_before(max(begins, datetime.fromisoformat(since)) if since else begins)
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
