"""Flower's SuperLink with a door: from other machines, only nodes are let in.

`python -m accord.federation.door ...` is `flower-superlink ...`. Flower serves nodes, operators and server apps at one
port. Without an enterprise login it asks operators for nothing: whoever reaches the port could register a key or start
a run, which is to run code here. So what is not the nodes' part is answered to this machine alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
LONGEST = 1 << 26  # bytes of one call
NODES = "/v1/fleet/"  # every call there is signed with a registered key (`--enable-supernode-auth`)


class Door:
    """Refuses what comes from elsewhere and is not a node's, before Flower looks at it."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not admitted(scope):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await _refused(send, 403, b"only from the SuperLink's own machine")
        elif scope["type"] == "http" and not bounded(scope):
            await _refused(send, 413, b"a call says how long it is, and is no longer than allowed")
        else:
            await self.app(scope, receive, send)


async def _refused(send: Send, status: int, said: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": said})


def bounded(scope: Scope) -> bool:
    """Whether the SuperLink can take a call's body into memory: Flower cuts messages into pieces of 5 MiB."""
    headers = dict(scope.get("headers", ()))
    if b"transfer-encoding" in headers:
        return False
    length = headers.get(b"content-length", b"0")
    return length.isdigit() and int(length) <= LONGEST


def admitted(scope: Scope) -> bool:
    """Whether this call may go on: a node's from anywhere, anything from this machine."""
    if scope["type"] == "http" and (scope["path"].startswith(NODES) or scope["path"] == "/health"):
        return True
    client, server = scope.get("client"), scope.get("server")
    if not client:
        return False
    try:
        return ipaddress.ip_address(client[0]).is_loopback or (server is not None and client[0] == server[0])
    except ValueError:
        return False


def main() -> None:
    """Flower's own command, with the door as its outermost part."""
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    if not callable(getattr(extensions, "get_middleware", None)):
        raise SystemExit("this version of Flower has no place for a door; Accord knows flwr 1.41")
    theirs = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(Door), *theirs())
    flower_superlink()


if __name__ == "__main__":
    main()
