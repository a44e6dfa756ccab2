"""A site's process: Flower's SuperNode with the site's own key, as the owner's file says."""

from __future__ import annotations

import sys
from pathlib import Path

from accord.config.toml import literal
from accord.engine.files import write_atomic
from accord.federation.commands import write_commands
from accord.federation.node_file import Connection
from accord.federation.processes import Process, start
from accord.federation.surroundings import surroundings

LOG = "supernode.log"
READY = "SuperNode ID:"  # what Flower's SuperNode says once the SuperLink has let it in
REFUSED = "[code: 2004]"  # the SuperLink does not know the key, or believes the node to be online still
STILL_ONLINE = 90.0  # seconds until the SuperLink has noticed that a killed node is gone: two heartbeats of 30 s


def write_flower_settings(path: Path, values: dict[str, str]) -> Path:
    """Settings for Flower as a file: on its command line some paths cannot be written."""
    write_atomic(path, "".join(f"{name} = {literal(value)}\n" for name, value in values.items()))
    return path


def launch(file: Path, connection: Connection, port: int, plan: Process) -> Process:
    """Start it; what it says goes to supernode.log beside its file."""
    return start(plan, *prepared(file, connection, port))


def prepared(file: Path, connection: Connection, port: int) -> tuple[list[str], Path, dict[str, str]]:
    """Command, log and environment of a SuperNode: it finds our own client app where Flower looks for one."""
    home = file.parent / "flower"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = write_flower_settings(home / "node-config.toml", {"node": str(file.resolve())})
    command = [
        *(sys.executable, "-m", "accord.federation.own_supernode", "--superlink", connection.server),
        *("--root-certificates", str(connection.authority), "--auth-supernode-private-key", str(connection.key)),
        *("--host", "127.0.0.1", "--port", str(port), "--node-config", str(settings)),
    ]
    return command, file.parent / LOG, surroundings(home, write_commands(home / "commands"))
