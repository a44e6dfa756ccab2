"""From other machines only nodes are let in, whatever the path looks like; a node starts our own app alone."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from accord.federation.commands import OURS, REFUSED, write_commands
from accord.federation.door import Door, admitted

AWAY, HERE, LAN = ("203.0.113.9", 5000), ("127.0.0.1", 5000), ("192.168.1.5", 9092)


def call(path: str, client: tuple[str, int] | None, server: tuple[str, int] | None = LAN, kind: str = "http") -> Any:
    return {"type": kind, "path": path, "client": client, "server": server}


@pytest.mark.parametrize(
    ("scope", "let_in"),
    [
        (call("/v1/fleet/pull-messages", AWAY), True),
        (call("/health", AWAY), True),
        (call("/v1/control/start-run", AWAY), False),
        (call("/v1/control/register-node", AWAY), False),
        (call("/v1/runtime/acquire-task", AWAY), False),
        (call("/docs", AWAY), False),
        (call("/v1/fleet", AWAY), False),
        (call("//v1/fleet/x", AWAY), False),
        (call("/V1/FLEET/x", AWAY), False),
        (call("/health/../v1/control/start-run", AWAY), False),
        (call("/v1/fleet/x", AWAY, kind="websocket"), False),
        (call("/v1/control/start-run", HERE), True),
        (call("/v1/control/start-run", ("::1", 5000)), True),
        (call("/v1/control/start-run", ("192.168.1.5", 4711)), True),  # this machine by its other address
        (call("/v1/control/start-run", ("192.168.1.6", 4711)), False),
        (call("/v1/control/start-run", None), False),
        (call("/v1/control/start-run", ("testclient", 1)), False),
        (call("/v1/control/start-run", AWAY, None), False),
    ],
)
def test_who_is_let_in(scope: Any, let_in: bool) -> None:
    assert admitted(scope) is let_in


def through(scope: Any) -> tuple[list[str], list[MutableMapping[str, Any]]]:
    """Which paths arrive behind the door, and what is answered."""
    arrived: list[str] = []
    sent: list[MutableMapping[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        arrived.append(scope.get("path", scope["type"]))

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("nothing is read from one who is not let in")

    asyncio.run(Door(app)(scope, receive, send))
    return arrived, sent


def test_what_is_refused_never_arrives() -> None:
    arrived, sent = through(call("/v1/control/start-run", AWAY))
    assert arrived == []
    assert sent[0]["status"] == 403
    assert b"own machine" in sent[1]["body"]
    arrived, sent = through(call("/v1/fleet/x", AWAY, kind="websocket"))
    assert (arrived, sent) == ([], [{"type": "websocket.close", "code": 1008}])


def test_what_is_let_in_arrives_as_it_is() -> None:
    assert through(call("/v1/fleet/pull-messages", AWAY)) == (["/v1/fleet/pull-messages"], [])
    assert through({"type": "lifespan"}) == (["lifespan"], [])


def test_of_flowers_programs_a_node_starts_ours_alone(tmp_path: Path) -> None:
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / OURS).write_text("an old one")
    folder = write_commands(tmp_path / "commands")
    assert {path.name for path in folder.iterdir()} == {OURS, *TASK_TYPE_TO_COMMAND.values()}
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o700
        if path.name == OURS:
            assert "-m accord.federation.own_superexec" in path.read_text()
        else:
            done = subprocess.run([path, "--token", "x"], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr.strip()) == (1, REFUSED)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"content-length", b"5242880")], None),
        ([(b"content-length", str(10 << 30).encode())], 413),
        ([(b"content-length", b"-1")], 413),
        ([(b"transfer-encoding", b"chunked")], 413),
        ([], None),
    ],
)
def test_no_call_fills_the_superlinks_memory(headers: Any, status: int | None) -> None:
    arrived, sent = through({**call("/v1/fleet/push-object", AWAY), "headers": headers})
    assert bool(arrived) is (status is None)
    assert [message["status"] for message in sent if "status" in message] == ([] if status is None else [status])
