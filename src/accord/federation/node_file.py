"""A node's file, node.toml: what its owner decides (`accord.flower` reads that), and how it is connected.

[connection]
server = "fl.example.org:9092"
ca = "ca.pem"        # how the server is known
key = "node.key"     # how this node is known
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.config.load import read_toml
from accord.config.toml import literal
from accord.errors import ConfigError
from accord.federation.certificates import OPEN, check_certificate, check_secret, write_new
from accord.flower.owner import Owner, read_owner

CONNECTION = {"server": "host:port", "ca": "the authority's certificate", "key": "this node's key"}


@dataclass(frozen=True)
class Connection:
    """How a node finds the server, knows it, and is known by it."""

    server: str
    authority: Path
    key: Path


@dataclass(frozen=True)
class Node:
    """All of a node's file."""

    file: Path
    owner: Owner
    connection: Connection


def read_node(file: Path) -> Node:
    """Read and check it; a ConfigError says what is wrong."""
    return Node(file, read_owner(file), _connection(file, read_toml(file).get("connection")))


def _connection(file: Path, values: Any) -> Connection:
    if not isinstance(values, dict) or set(values) != set(CONNECTION):
        said = ", ".join(f"{name} ({what})" for name, what in CONNECTION.items())
        raise ConfigError(f"{file}: [connection] must have exactly {said}")
    if wrong := [name for name in CONNECTION if not isinstance(values[name], str)]:
        raise ConfigError(f"{file}: connection.{wrong[0]} must be a text")
    check_address(values["server"], f"{file}: connection.server")
    authority, key = (file.parent / Path(values[name]).expanduser() for name in ("ca", "key"))
    check_certificate(authority)
    check_secret(key, "the node's key")
    return Connection(values["server"], authority.resolve(), key.resolve())


def check_address(text: str, what: str) -> None:
    """ConfigError unless it is host:port."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{what} {text!r} must be host:port, as fl.example.org:9092")


def write_node(file: Path, site: str, data: Mapping[str, object], server: str) -> None:
    """A node's file with the usual consent, which its owner may change; never over another."""
    lines = [
        "# What this node agrees to is decided here, by its owner (docs/federation.md).",
        f"site = {literal(site)}",
        'folder = "memory"            # what the node remembers between rounds',
        'allow = []                   # beyond updates, scores and statistics, e.g. ["fedmix.means"]',
        "largest_message_mb = 1024",
        "",
        "[data]",
        *(f"{name} = {literal(value)}" for name, value in data.items()),
        "",
        "[connection]",
        f"server = {literal(server)}",
        'ca = "ca.pem"                # how the server is known',
        'key = "node.key"             # how this node is known; nobody else may have it',
    ]
    write_new(file, ("\n".join(lines) + "\n").encode(), OPEN)


def agreement(node: Node) -> list[str]:
    """What the node's owner has agreed to, in words; reads the data, and refuses what cannot be used."""
    from accord.flower.consent import Consent
    from accord.flower.own_data import check_own, load_own

    owner = node.owner
    consent, data = Consent.of(owner), load_own(owner)
    check_own(data)
    kinds = ", ".join(sorted(kind.word for kind in consent.kinds)) or "nothing"
    cover = f"clipped to {owner.clip:g}, noise {owner.noise:g}" if owner.clip else "as they are"
    return [
        f"{owner.site}: {len(data.train)} training and {len(data.test)} test samples of {data.name}",
        f"the server at {node.connection.server} may ask for: {kinds}; by name: {', '.join(owner.allow) or 'nothing'}",
        f"updates leave {cover}; messages of at most {owner.largest_message_mb} MB; samples stay here",
    ]
