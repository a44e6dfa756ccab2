"""The parts of a federation, before anything runs: certificates, and a folder with key and file for every site."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from accord.config.load import read_toml
from accord.data.federated import FederatedData
from accord.errors import ConfigError
from accord.federation.certificates import (
    OPEN,
    SECRET,
    make_certificates,
    make_node_key,
    private_folder,
    read_public_key,
    write_new,
)
from accord.federation.folder import Folder
from accord.federation.node_file import write_node

NODE, KEY, AUTHORITY = "node.toml", "node.key", "ca.pem"
Data = Mapping[str, object]  # what [data] of a node's file says


def make_server(folder: Folder, hosts: Sequence[str] = ()) -> None:
    """The server's part; one that is there stays as it is."""
    private_folder(folder.path)
    if not folder.certificates.server.exists():
        make_certificates(folder.server, hosts)
    private_folder(folder.admitted)


def add_site(folder: Folder, site: str, data: Data, server: str) -> Path:
    """A site's part, and its key among those let in. One that is there stays as it is, and must have the same data."""
    place = folder.site(site)
    if (place / NODE).exists():
        known = read_toml(place / NODE).get("data")
        if known != dict(data):
            raise ConfigError(
                f"{place / NODE} has other data: edit that file, or use another folder for another federation"
            )
        return place
    private_folder(place)
    if not (place / KEY).exists():  # an earlier call may have been killed before the end
        make_node_key(place / KEY)
    if not (place / AUTHORITY).exists():
        write_new(place / AUTHORITY, folder.certificates.authority.read_bytes(), OPEN)
    admit(folder, site, place / f"{KEY}.pub")
    write_node(place / NODE, site, data, server)
    return place


def admit(folder: Folder, site: str, public: Path) -> None:
    """Let the node with this public key in, from the next start of the server on."""
    folder.site(site)  # a name that can be a file's
    key = read_public_key(public)
    kept = folder.admitted / f"{site}.pub"
    if kept.exists():
        if read_public_key(kept) != key:
            raise ConfigError(f"{kept} holds another key of {site}: remove it first if the old one is no longer valid")
        return
    private_folder(folder.admitted)
    write_new(kept, key + b"\n", OPEN)


def deal(folder: Folder, data: FederatedData) -> dict[str, Data]:
    """Write every client's samples to a file in its own site's folder; what [data] of each says."""
    width = len(str(len(data) - 1))
    said: dict[str, Data] = {}
    for client in range(len(data)):
        site = f"site-{client:0{width}}"
        place = folder.site(site)
        private_folder(place)
        if not (place / "data.npz").exists():
            write_new(place / "data.npz", _arrays(data, client), SECRET)
        said[site] = {"path": "data.npz", "called": data.name}
    return said


def _arrays(data: FederatedData, client: int) -> bytes:
    (x, y), (test_x, test_y) = data.client(client), data.client(client, "test")
    file = io.BytesIO()
    samples = {"x": x, "y": y, "test_x": test_x, "test_y": test_y}
    np.savez_compressed(file, classes=np.array(data.classes), **{name: t.numpy() for name, t in samples.items()})
    return file.getvalue()
