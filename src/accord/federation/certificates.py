"""The secrets of a federation: an authority, the server's certificate, and a key per node.

The authority signs the server's certificate, which is how nodes know the server. A node signs what it sends with a key
of its own, which is how the server knows the node. Whoever has `ca.key` can pretend to be the server, whoever has a
node's key to be that node: secrets are readable by their owner alone, and nothing is ever written over.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from accord.errors import ConfigError, RunError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

SECRET, OPEN = 0o600, 0o644
HOSTS = ("127.0.0.1", "localhost")
AUTHORITY_DAYS, SERVER_DAYS = 3650, 825  # browsers and libraries refuse servers' certificates that last longer
SLACK = datetime.timedelta(minutes=5)  # clocks of two machines are never quite the same
HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*")


@dataclass(frozen=True)
class Certificates:
    """Where the authority and the server have theirs."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate: what every node is given to know the server by."""
        return self.folder / "ca.pem"

    @property
    def authority_key(self) -> Path:
        """What signs servers' certificates; no running process needs it."""
        return self.folder / "ca.key"

    @property
    def server(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.pem"

    @property
    def server_key(self) -> Path:
        """What the server proves its certificate with."""
        return self.folder / "server.key"


def make_certificates(folder: Path, hosts: Sequence[str] = ()) -> Certificates:
    """An authority and a certificate for the server, good for this machine and for `hosts`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    made = Certificates(folder)
    names = [_general_name(host) for host in dict.fromkeys((*HOSTS, *hosts))]
    for path in (made.authority, made.authority_key, made.server, made.server_key):
        refuse_existing(path)
    private_folder(folder)
    authority_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    # A name of its own for each authority: a library that meets two of one name would try the wrong one first.
    issuer = _name(f"Accord federation {secrets.token_hex(4)}")
    authority = (
        _certificate(issuer, issuer, authority_key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA384())
    )
    server = (
        _certificate(_name("Accord federation server"), issuer, server_key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA384())
    )
    write_new(made.authority_key, _private_pem(authority_key), SECRET)
    write_new(made.server_key, _private_pem(server_key), SECRET)
    write_new(made.authority, _pem(authority), OPEN)
    write_new(made.server, _pem(server), OPEN)
    return made


def make_node_key(path: Path) -> Path:
    """A node's own key at `path`; the half that is given to the server lies beside it as `.pub`, and is returned."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    public = path.with_name(f"{path.name}.pub")
    refuse_existing(path)
    refuse_existing(public)
    private_folder(path.parent)
    key = ec.generate_private_key(ec.SECP384R1())
    form = serialization.PrivateFormat.OpenSSH  # what Flower reads, as ssh-keygen writes it
    write_new(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()), SECRET)
    said = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_new(public, said + b"\n", OPEN)
    return public


def read_public_key(path: Path) -> bytes:
    """A node's public key as it is written in one line, without the comment behind it; refused if it is no such key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

    what = f"{path} is not a node's public key: `accord federation keys` makes one"
    try:
        key = load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{what} ({error})") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(f"{what} (only ECDSA keys, as of ssh-keygen -t ecdsa -b 384)")
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def check_secret(path: Path, what: str) -> None:
    """Refuse a secret that is missing or that others on this machine can read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror or error}") from error
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{what} {path} can be read by others on this machine: chmod 600 {path}")


def check_certificate(path: Path, hosts: Sequence[str] = ()) -> None:
    """Refuse a certificate that cannot be read, has run out, or (a server's) is not for `hosts`."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the certificate {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a certificate: `accord federation keys` makes one") from error
    if found.not_valid_after_utc < datetime.datetime.now(datetime.timezone.utc):
        raise ConfigError(
            f"the certificate {path} has run out on {found.not_valid_after_utc:%Y-%m-%d}: "
            "make new ones with `accord federation keys` and hand the new ca.pem to the nodes"
        )
    if hosts:
        known = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for host in hosts:
            if _general_name(host) not in known:
                raise ConfigError(
                    f"the certificate {path} is not for {host}: make one with `accord federation keys --host {host}`"
                )


def refuse_existing(path: Path) -> None:
    """What is there already is somebody's: ConfigError."""
    if os.path.lexists(path):
        raise ConfigError(f"{path} exists already and is not written over: choose another folder, or remove it first")


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can look into; one that exists stays as it is."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the folder {path}: {error.strerror or error}") from error


def write_new(path: Path, data: bytes, mode: int) -> None:
    """A file that is there whole or not at all, with `mode` from its first moment; never over another."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, this fails where something is there
    except FileExistsError:
        refuse_existing(path)
        raise
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if HOST.fullmatch(host) is None or len(host) > 253 or host.rsplit(".", 1)[-1].isdigit():
            raise ConfigError(f"{host!r} is no host: give a name such as fl.example.org or an IP address") from None
        return x509.DNSName(host)


def _name(common: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
