"""Certificates that real TLS takes, and refuses when they are not the right ones; secrets that stay secret."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from accord.errors import ConfigError
from accord.federation import certificates
from accord.federation.certificates import (
    Certificates,
    check_certificate,
    check_secret,
    make_certificates,
    make_node_key,
    read_public_key,
    write_new,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("made") / "server", ["fl.example.org", "10.0.0.7"])


def handshake(server: Certificates, authority: Path, host: str) -> str | None:
    """What goes wrong between a server and a client who knows it by `authority`; None: nothing."""
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.load_cert_chain(server.server, server.server_key)
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            with here.wrap_socket(near, server_side=True) as line:
                line.sendall(b"well")
        except (ssl.SSLError, OSError):
            near.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ssl.create_default_context(cafile=str(authority)).wrap_socket(far, server_hostname=host) as line:
            assert line.recv(4) == b"well"
        return None
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        far.close()
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "fl.example.org", "10.0.0.7"])
def test_the_server_is_known_by_every_name_it_has(made: Certificates, host: str) -> None:
    assert handshake(made, made.authority, host) is None


def test_a_name_it_does_not_have_is_refused(made: Certificates) -> None:
    assert "mismatch" in str(handshake(made, made.authority, "elsewhere.example.org")).lower()


def test_another_authority_does_not_know_it(made: Certificates, tmp_path: Path) -> None:
    other = make_certificates(tmp_path)
    assert "unable to get local issuer" in str(handshake(made, other.authority, "127.0.0.1"))


def test_the_server_cannot_sign_certificates(made: Certificates) -> None:
    server = x509.load_pem_x509_certificate(made.server.read_bytes())
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    server.verify_directly_issued_by(authority)


def test_secrets_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)  # the worst case
    try:
        made = make_certificates(tmp_path / "server")
        public = make_node_key(tmp_path / "node" / "node.key")
    finally:
        os.umask(before)
    for secret in (made.authority_key, made.server_key, tmp_path / "node" / "node.key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        check_secret(secret, "the key")
    assert stat.S_IMODE((tmp_path / "server").stat().st_mode) == 0o700
    assert public.name == "node.key.pub"
    made.server_key.chmod(0o640)
    with pytest.raises(ConfigError, match=r"can be read by others on this machine: chmod 600"):
        check_secret(made.server_key, "the key")
    with pytest.raises(ConfigError, match="No such file"):
        check_secret(tmp_path / "absent", "the key")


def test_nothing_is_written_over(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match="exists already and is not written over"):
        make_certificates(tmp_path)
    made.authority.unlink()
    with pytest.raises(ConfigError, match=r"ca\.key exists already"):
        make_certificates(tmp_path)
    assert not made.authority.exists(), "all or nothing"
    make_node_key(tmp_path / "node.key")
    with pytest.raises(ConfigError, match=r"node\.key exists already"):
        make_node_key(tmp_path / "node.key")
    assert all(path.read_bytes() == said for path, said in kept.items() if path != made.authority)


def test_a_link_in_the_place_of_a_secret_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "node.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="exists already"):
        make_node_key(tmp_path / "node.key")
    with pytest.raises(ConfigError, match="exists already"):
        write_new(tmp_path / "node.key", b"x", 0o600)
    assert not (tmp_path / "elsewhere").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["node.key"], "nothing temporary stays"


def test_node_keys_are_what_flower_reads(tmp_path: Path) -> None:
    public = make_node_key(tmp_path / "node.key")
    key = load_ssh_private_key((tmp_path / "node.key").read_bytes(), password=None)
    said = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert said.startswith(b"ecdsa-sha2-nistp384 ")
    assert read_public_key(public) == said
    public.write_bytes(said + b" lyon@example.org\n")
    assert read_public_key(public) == said, "a comment is not part of the key"


def test_other_keys_are_refused(tmp_path: Path) -> None:
    other = ed25519.Ed25519PrivateKey.generate().public_key()
    (tmp_path / "ed.pub").write_bytes(other.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    with pytest.raises(ConfigError, match="only ECDSA keys"):
        read_public_key(tmp_path / "ed.pub")
    (tmp_path / "none.pub").write_text("hello")
    with pytest.raises(ConfigError, match="is not a node's public key: `accord federation keys` makes one"):
        read_public_key(tmp_path / "none.pub")
    with pytest.raises(ConfigError, match="cannot read"):
        read_public_key(tmp_path / "absent.pub")


@pytest.mark.parametrize("host", ["", "two words", "-minus", "a/b", "300.1.2.3", "x" * 64, "*", "a" * 60 + ".b" * 100])
def test_what_is_no_host_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no host: give a name such as fl\.example\.org"):
        make_certificates(tmp_path / "server", [host])
    assert not (tmp_path / "server").exists()


def test_certificates_are_checked_before_use(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_certificate(made.server, ["127.0.0.1", "fl.example.org"])
    with pytest.raises(ConfigError, match=r"is not for other\.org: make one with .* --host other\.org"):
        check_certificate(made.server, ["other.org"])
    with pytest.raises(ConfigError, match="cannot read the certificate"):
        check_certificate(tmp_path / "absent.pem")
    (tmp_path / "none.pem").write_text("hello")
    with pytest.raises(ConfigError, match="is not a certificate"):
        check_certificate(tmp_path / "none.pem")
    monkeypatch.setattr(certificates, "SERVER_DAYS", -1)
    monkeypatch.setattr(certificates, "SLACK", datetime.timedelta(days=3))
    old = make_certificates(tmp_path / "old")
    with pytest.raises(ConfigError, match=r"has run out on .*: make new ones"):
        check_certificate(old.server)
    assert "expired" in str(handshake(old, old.authority, "127.0.0.1"))
