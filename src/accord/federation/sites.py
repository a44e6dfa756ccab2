"""The parts of a federation, before anything runs: certificates, and a folder with key and file for every site."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accord.config.load import read_toml
from accord.data.federated import FederatedData
from accord.data.own.schema import agree, write_json
from accord.data.own.summaries import summarise
from accord.errors import ConfigError, DataError
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

NODE, KEY, AUTHORITY, SCHEMA = "node.toml", "node.key", "ca.pem", "schema.json"
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
    if any(read_public_key(path) == key for path in folder.expelled.glob("*.pub")):
        raise ConfigError(
            f"the key in {public} was shut out, and stays so: {site} makes a new one, "
            "`accord federation keys FOLDER --node SITE` in an empty folder"
        )
    private_folder(folder.admitted)
    write_new(kept, key + b"\n", OPEN)


def tables(folder: Folder, sites: Mapping[str, Data]) -> dict[str, Data]:
    """What [data] of sites with tables says once they agree on a schema; a copy of it lies in every site's folder.

    Here one command sees all tables. On several machines each site makes its own summary (`accord federation summary`).
    """
    known = folder.path / SCHEMA
    if not known.exists():
        made = {}
        for site, data in sites.items():
            given = {name: value for name, value in data.items() if name != "path"}
            try:
                made[site] = summarise(str(data["path"]), **given)  # type: ignore[arg-type]
            except DataError as error:
                raise DataError(f"{site}, {data['path']}: {error}") from error
        write_json(known, agree(made))
    said = known.read_bytes()
    for site in sites:
        private_folder(folder.site(site))
        if not (folder.site(site) / SCHEMA).exists():
            write_new(folder.site(site) / SCHEMA, said, OPEN)
    return {site: {**data, "schema": SCHEMA} for site, data in sites.items()}


def deal(folder: Folder, data: FederatedData, way: str) -> dict[str, Data]:
    """Write every client's samples to a file in its own site's folder; what [data] of each says.

    `way` is how they were divided, which is kept: what is there already must have been divided so.
    """
    known = folder.path / "dealt.toml"
    if not known.exists():
        if folder.sites:
            raise ConfigError(
                f"{folder.path} has sites with data of their own: use another folder, or leave out --nodes"
            )
        write_new(known, way.encode(), OPEN)
    if known.read_text(encoding="utf-8") != way:
        raise ConfigError(f"{folder.path} was divided in another way: use another folder, or leave out --nodes")
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
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in samples.items()}
    np.savez_compressed(file, classes=np.array(data.classes), **arrays)
    return file.getvalue()
