"""What a node's owner has decided, in a TOML file on the node's own machine: its data, its folder, and its consent.

    site = "lyon"                    # the name everybody knows it by, whatever Flower calls the node today
    folder = "memory"                # where it keeps what it remembers between rounds
    allow = ["fedmix.means"]         # what it agrees to beyond updates, scores and statistics: METHOD.TASK
    clip = 0.0                       # largest norm of what leaves, all updates together; 0: as it is
    noise = 0.0                      # deviation of the noise added to every number of it; 0: none
    largest_message_mb = 1024
    holdout = 0.2                    # share of the samples it is judged on, where no test file is named

    [data]                           # as in a run's configuration: a table, a folder of images, a named data set
    path = "patients.csv"
    label = "outcome"

Paths are taken from the folder of the file. Nothing the server sends can change any of this.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accord.config.load import read_toml
from accord.errors import ConfigError, RunError, nearest
from accord.flower.protocol import SITE
from accord.wire.files import read_here
from accord.wire.records import shown

SECRET = "secret"  # noqa: S105 - the name of a file


@dataclass(frozen=True)
class Owner:
    """Everything a node does follows from this."""

    site: str
    folder: Path
    data: Mapping[str, Any]
    holdout: float = 0.2
    allow: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()  # kinds of disclosure it does not agree to, though they are usual
    clip: float = 0.0
    noise: float = 0.0
    largest_message_mb: int = 1024
    device: str = "cpu"
    place: Path = field(default_factory=Path)  # what paths are taken from

    def __post_init__(self) -> None:
        if not SITE.fits(self.site):
            raise ConfigError(f"site = {shown(self.site)}: it must be {SITE.allowed}")
        if not 0 < self.holdout < 1:
            raise ConfigError(f"holdout = {self.holdout}: it must lie between 0 and 1")
        for name in ("clip", "noise"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} = {getattr(self, name)}: it must be a number of 0 or more")
        if self.noise and not self.clip:
            raise ConfigError("noise without clip hides nothing, as what leaves may be of any size: set clip too")
        if not 1 <= self.largest_message_mb <= 1 << 16:
            raise ConfigError(f"largest_message_mb = {self.largest_message_mb}: it must be from 1 to {1 << 16}")

    @property
    def largest(self) -> int:
        """Bytes of a message."""
        return self.largest_message_mb << 20

    @property
    def files(self) -> list[Path]:
        """The files its data are read from."""
        named = (self.data.get(name) for name in ("path", "test", "schema"))
        return [self.place / os.path.expanduser(name) for name in named if isinstance(name, str)]

    def secret(self) -> bytes:
        """32 bytes that only this node knows, made once and kept in its folder; noise is drawn from it."""
        path = self.folder / SECRET
        with suppress(FileNotFoundError):
            found = read_here(path, 1024)
            if len(found) != 32:
                raise RunError(f"{path} is damaged: remove it, and the node is a new one to every server")
            return found
        self.folder.mkdir(parents=True, exist_ok=True)
        made = secrets.token_bytes(32)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made)
            file.flush()
            os.fsync(file.fileno())
        return made

    def mark(self) -> str:
        """What the server knows this node by when it comes back under another number."""
        return hashlib.sha256(b"accord node " + self.secret()).hexdigest()


TYPES: dict[str, tuple[type, ...]] = {
    "site": (str,),
    "folder": (str,),
    "data": (dict,),
    "holdout": (int, float),
    "allow": (list,),
    "refuse": (list,),
    "clip": (int, float),
    "noise": (int, float),
    "largest_message_mb": (int,),
    "device": (str,),
    "connection": (dict,),  # how its SuperNode is connected: read by accord.federation
}


def read_owner(path: Path | str) -> Owner:
    """The owner's file; a ConfigError says what is wrong with it."""
    path = Path(os.path.expanduser(path))
    given = read_toml(path)
    for name, value in given.items():
        if name not in TYPES:
            raise ConfigError(f"{path}: unknown key {name!r}.{nearest(name, TYPES)} Allowed: {', '.join(TYPES)}")
        if not isinstance(value, TYPES[name]) or isinstance(value, bool):
            raise ConfigError(f"{path}: {name} = {shown(value)} is no {TYPES[name][0].__name__}")
    for name in ("site", "data"):
        if name not in given:
            raise ConfigError(f"{path}: {name} is missing; a node's file names its site and its [data]")
    for name in ("allow", "refuse"):
        if not all(isinstance(word, str) for word in given.get(name, [])):
            raise ConfigError(f"{path}: {name} must be a list of words")
    place = path.resolve().parent
    numbers = {name: float(given[name]) for name in ("holdout", "clip", "noise") if name in given}
    try:
        return Owner(
            given["site"],
            place / os.path.expanduser(given.get("folder", "memory")),
            given["data"],
            **numbers,
            allow=tuple(given.get("allow", ())),
            refuse=tuple(given.get("refuse", ())),
            largest_message_mb=given.get("largest_message_mb", 1024),
            device=given.get("device", "cpu"),
            place=place,
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
