"""Keys: names, authorities, expiry; and a secret that only its owner may read."""

import stat

import pytest

from m2fdp.core.errors import InputError
from m2fdp.deployment import keys


@pytest.fixture
def authority(tmp_path):
    keys.make_authority(tmp_path / "authority")
    return tmp_path / "authority"


def made(tmp_path, authority, name="edge-1", days=1):
    own = tmp_path / name
    keys.sign(keys.request(name, own), authority, days)
    return own


def test_a_node_has_a_key_that_its_certificate_verifies(tmp_path, authority):
    own = made(tmp_path, authority)
    identity = keys.read_identity("edge-1", own)
    signature = identity.sign(b"content")
    assert keys.verify(identity.certificate, signature, b"content")
    assert not keys.verify(identity.certificate, signature, b"other")
    assert not keys.verify(authority.joinpath("authority.pem").read_bytes(), signature, b"content")
    for secret in (own / "edge-1.key", authority / "authority.key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert not (own / "authority.key").exists()


def renamed(tmp_path, own):
    for ending in ("pem", "key"):
        (own / f"edge-1.{ending}").rename(own / f"edge-2.{ending}")
    return "edge-2"


def under_another_authority(tmp_path, own):
    keys.make_authority(tmp_path / "other")
    (own / "authority.pem").write_bytes((tmp_path / "other/authority.pem").read_bytes())


def expired(tmp_path, own):
    keys.sign(own / "edge-1.csr", tmp_path / "authority", days=0)


def garbled(tmp_path, own):
    (own / "edge-1.pem").write_bytes(b"no certificate")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (renamed, "is the certificate of edge-1, not of edge-2"),
        (under_another_authority, "is not signed by this node's authority"),
        (expired, "was valid until"),
        (garbled, "is not signed by this node's authority"),
    ],
)
def test_a_certificate_is_of_its_name_and_authority_and_valid(tmp_path, authority, change, words):
    own = made(tmp_path, authority)
    identity = keys.read_identity("edge-1", own)
    assert keys.fault(identity.certificate, identity.authority, "edge-1") is None
    name = change(tmp_path, own) or "edge-1"
    with pytest.raises(InputError, match=f"{words}.*; have a request signed anew"):
        keys.read_identity(name, own)
    shown, by = (own / f"{name}.pem").read_bytes(), (own / "authority.pem").read_bytes()
    assert keys.fault(shown, by, name) is not None


def test_a_key_of_another_certificate_is_refused(tmp_path, authority):
    own, other = made(tmp_path, authority), tmp_path / "other"
    keys.request("edge-1", other)
    (own / "edge-1.key").write_bytes((other / "edge-1.key").read_bytes())
    with pytest.raises(InputError, match="is of another key than edge-1.key"):
        keys.read_identity("edge-1", own)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "é", "a" * 64, "authority"])
def test_names_are_those_of_hosts(tmp_path, name):
    with pytest.raises(InputError, match="is no name of a certificate"):
        keys.request(name, tmp_path)


def test_nothing_is_made_twice_and_nothing_is_signed_that_is_no_request(tmp_path, authority):
    with pytest.raises(InputError, match="has an authority"):
        keys.make_authority(authority)
    made(tmp_path, authority)
    with pytest.raises(InputError, match="a node has one key"):
        keys.request("edge-1", tmp_path / "edge-1")
    with pytest.raises(InputError, match="is no request"):
        keys.sign(authority / "authority.pem", authority)
