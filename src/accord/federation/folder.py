"""A federation's folder: where everything lies, and what of it runs.

    server/       certificates, the SuperLink's database, log and Flower's home
    admitted/     SITE.pub: the public keys of the nodes that are let in
    expelled/     SITE.HASH.pub: those of nodes that were shut out again
    nodes/SITE/   what belongs to one site: node.toml, its key, ca.pem, its memory, log and Flower's home
    runs/         what runs leave, as a simulation does
    federation.json   the port and the processes

On several machines each has its own part: the server's has `server`, `admitted` and `runs`, a site's its own folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from accord.engine.files import write_atomic
from accord.errors import ConfigError, RunError
from accord.federation.certificates import Certificates
from accord.federation.processes import Process

SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FORMAT = 1


@dataclass(frozen=True)
class Folder:
    """Where what lies."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(os.path.abspath(self.path)))  # processes have other working folders

    @property
    def server(self) -> Path:
        """The server's part."""
        return self.path / "server"

    @property
    def certificates(self) -> Certificates:
        """The authority's and the server's."""
        return Certificates(self.server)

    @property
    def home(self) -> Path:
        """Flower's home at the server."""
        return self.server / "flower"

    @property
    def database(self) -> Path:
        """What the SuperLink knows: nodes, runs, messages under way."""
        return self.server / "superlink.db"

    @property
    def log(self) -> Path:
        """What the SuperLink and the server apps it starts say."""
        return self.server / "superlink.log"

    @property
    def admitted(self) -> Path:
        """Public keys of the nodes that are let in."""
        return self.path / "admitted"

    @property
    def expelled(self) -> Path:
        """Public keys of the nodes that were shut out."""
        return self.path / "expelled"

    @property
    def runs(self) -> Path:
        """What runs leave."""
        return self.path / "runs"

    @property
    def sites(self) -> dict[str, Path]:
        """The sites whose nodes belong to this machine, with their folders, by name; not those that were shut out."""
        nodes = self.path / "nodes"
        names = sorted(path.name for path in nodes.iterdir()) if nodes.is_dir() else []
        return {name: nodes / name for name in names if (nodes / name / "node.toml").is_file() and not self._out(name)}

    def _out(self, name: str) -> bool:
        return not (self.admitted / f"{name}.pub").exists() and any(self.expelled.glob(f"{name}.{'?' * 16}.pub"))

    def site(self, name: str) -> Path:
        """Where a site has its part."""
        if SITE.fullmatch(name) is None:
            raise ConfigError(
                f"{name!r} cannot name a site: letters, digits, dots, hyphens and underscores only, at most 64"
            )
        return self.path / "nodes" / name


@dataclass(frozen=True)
class State:
    """What runs, as federation.json has it."""

    host: str = "127.0.0.1"
    port: int = 0
    processes: tuple[Process, ...] = ()

    @property
    def local(self) -> str:
        """Where this machine itself reaches the SuperLink: at the loopback, unless it listens elsewhere only."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104

    @property
    def address(self) -> str:
        """The same with the port."""
        return f"[{self.local}]:{self.port}" if ":" in self.local else f"{self.local}:{self.port}"

    def running(self, name: str) -> bool:
        """Whether the process of this name is alive."""
        return any(process.name == name and process.alive for process in self.processes)

    def with_process(self, process: Process) -> State:
        """With one more; an earlier one of that name is over."""
        return replace(self, processes=(*(p for p in self.processes if p.name != process.name), process))


def read_state(folder: Folder) -> State | None:
    """None where nothing was ever started."""
    path = folder.path / "federation.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ConfigError(f"{path} is of another version of Accord: use that one's `accord federation down`")
        processes = tuple(
            Process(str(p["name"]), str(p["mark"]), int(p["pid"]), str(p["began"])) for p in values["processes"]
        )
        return State(str(values["host"]), int(values["port"]), processes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}): end its processes by hand and remove it") from error


def write_state(folder: Folder, state: State) -> None:
    """Written before a process is started, so that `down` finds it whatever happens in between."""
    values: dict[str, object] = {"format": FORMAT, "host": state.host, "port": state.port}
    values["processes"] = [process.as_json() for process in state.processes]
    write_atomic(folder.path / "federation.json", json.dumps(values, indent=2) + "\n")


@contextmanager
def alone(folder: Folder) -> Iterator[None]:
    """Start and end processes of a federation alone: RunError while another command does."""
    try:
        import fcntl
    except ImportError:  # a system without file locks
        yield
        return
    handle = os.open(folder.path / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(f"another command starts or ends processes in {folder.path}: wait for it") from error
        yield
    finally:
        os.close(handle)
