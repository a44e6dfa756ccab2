"""The files of a model, found and checked before they are believed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.core.tensors import Tree
from accord.errors import ConfigError, DataError, RunError, nearest
from accord.wire.files import refuse_links
from accord.wire.model import CLIENTS, FOLDER, RECORD, SHARED, WEIGHTS, read_record, read_values
from accord.wire.records import shown

LISTED = 12  # clients that a message names


class ModelFolder:
    """A model's folder, or that of the run it lies in."""

    def __init__(self, folder: Path | str) -> None:
        given = Path(folder)
        self.path = given if (given / RECORD).exists() else given / FOLDER
        try:
            refuse_links(self.path / CLIENTS, *([] if self.path == given else [self.path]))
        except RunError as error:
            raise DataError(str(error)) from error
        if not (self.path / RECORD).exists():
            raise DataError(
                f"there is no model in {given}: a run writes {FOLDER}/{RECORD} when it comes to its end, unless it "
                "diverged"
            )
        self.record: Mapping[str, Any] = read_record(self.path)

    def values(self, client: str | int | None) -> Tree:
        """Of the global model, or of a client's own."""
        record = self.record
        if client is None:
            if record["weights"] is None:
                raise ConfigError(
                    f"{self.path} holds no model for all clients: the method ({record['method'][:80]}) keeps one for "
                    f"each. {self._clients()}"
                )
            return read_values(self.path / WEIGHTS, record["weights"])
        entry = record["clients"][self.name_of(client)]
        common = ((WEIGHTS, record["weights"]), (SHARED, record["shared"]))
        base = next((read_values(self.path / name, sha256) for name, sha256 in common if sha256), {})
        return {**base, **read_values(self.path / CLIENTS / entry["file"], entry["sha256"])}

    def name_of(self, client: str | int) -> str:
        """What a client is called that was given by its name or its number; names come first."""
        clients: Mapping[str, Mapping[str, Any]] = self.record["clients"]
        if isinstance(client, str) and client in clients:
            return client
        for name, entry in clients.items():
            if str(entry["number"]) == str(client):
                return name
        raise ConfigError(
            f"{self.path} holds no model of the client {shown(client)}.{nearest(str(client), clients)} "
            f"{self._clients()}"
        )

    def _clients(self) -> str:
        names = list(self.record["clients"])
        if not names:
            return "It holds no client's own model: methods that are about them keep some (see its README.md)."
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        return f"Clients: {', '.join(name[:80] for name in names[:LISTED])}{more}."
