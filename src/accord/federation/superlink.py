"""The server's process: Flower's SuperLink with TLS and authenticated nodes, behind our door."""

from __future__ import annotations

import http.client
import socket
import ssl
import sys
from pathlib import Path

from accord.errors import ConfigError, RunError
from accord.federation.certificates import check_certificate, check_secret
from accord.federation.control import register, unregister, write_connection
from accord.federation.folder import Folder, State
from accord.federation.processes import Process, exit_code, last_lines, start, waited
from accord.federation.surroundings import surroundings

NAME = "superlink"
PATIENCE = 90.0  # seconds; Flower alone takes five to be imported on a busy machine


def free_port() -> int:
    """One that nobody uses on this machine's loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """ConfigError where somebody else listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} of {host} cannot be used ({error.strerror or error}): choose another with --port"
            ) from error


def command(folder: Folder, host: str, port: int) -> list[str]:
    """Flower's command with our door."""
    files = folder.certificates
    return [
        *(sys.executable, "-m", "accord.federation.door"),
        *("--ssl-ca-certfile", str(files.authority), "--ssl-certfile", str(files.server)),
        *("--ssl-keyfile", str(files.server_key), "--enable-supernode-auth"),
        *("--host", host, "--port", str(port), "--database", str(folder.database)),
        "--disable-runtime-dependency-installation",
    ]


def check(folder: Folder, state: State) -> None:
    """Everything that can be known to be wrong before it is started."""
    check_secret(folder.certificates.server_key, "the server's key")
    check_certificate(folder.certificates.authority)
    check_certificate(folder.certificates.server, [state.local])
    check_port(state.host, state.port)


def launch(folder: Folder, state: State, plan: Process) -> Process:
    """Start it; `await_ready` says when it is there."""
    folder.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_connection(folder.home, state.address, folder.certificates.authority)
    return start(plan, command(folder, state.host, state.port), folder.log, surroundings(folder.home))


def await_ready(folder: Folder, state: State, process: Process) -> None:
    """Return when it answers by TLS with the right certificate, and has the keys of all who are let in."""
    ready = waited(lambda: not process.alive or answers(state, folder.certificates.authority), PATIENCE)
    if not process.alive:
        code = exit_code(process)
        raise RunError(f"the SuperLink ended with code {code}, see {folder.log}: {last_lines(folder.log)}")
    if not ready:
        raise RunError(f"the SuperLink does not answer after {PATIENCE:.0f} s, see {folder.log}")
    if keys := sorted(folder.admitted.glob("*.pub")):
        register(folder.home, keys)
    if keys := sorted(folder.expelled.glob("*.pub")):
        unregister(folder.home, keys)


def answers(state: State, authority: Path) -> bool:
    """Whether a SuperLink with a certificate of the authority is where it should be."""
    try:
        context = ssl.create_default_context(cafile=str(authority))
        connection = http.client.HTTPSConnection(state.local, state.port, timeout=5, context=context)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False
