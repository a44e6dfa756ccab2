"""The two apps Flower runs. All that is Flower's own API on the way in and out is here and in `envelopes`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from accord.errors import ConfigError
from accord.flower.bounds import bound_pulls
from accord.flower.envelopes import TYPES, content_of, opened
from accord.flower.node import NodeService
from accord.flower.owner import Owner, read_owner
from accord.flower.protocol import HELLO, JOIN, TASK
from accord.flower.unchanged import Stamp, stamp
from accord.observe import Observer


def server_app(*, config: str = "", folder: str = "", observers: Sequence[Observer] = ()) -> ServerApp:
    """The server of a federation.

    `config` is the run's TOML file and `folder` where the run is kept, both on the server's machine; the run config
    (`flwr run --run-config`) names them where they are not given here. The same folder again: the run goes on.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        from accord.flower.server import read_server_config, serve
        from accord.flower.telling import Telling

        speak()
        given = {name: str(value) for name, value in context.run_config.items()}
        path, place = config or given.get("config", ""), folder or given.get("folder", "")
        for name, value in (("config", path), ("folder", place)):
            if not value:
                raise ConfigError(f"the run config names no {name}: flwr run --run-config '{name}=\"...\"'")
        settings = read_server_config(path)
        bound_pulls(settings.federation.largest_message_mb << 20)
        serve(grid, settings, Path(place).expanduser(), [Telling(), *observers])

    return app


def client_app(*, node: str = "") -> ClientApp:
    """A node of a federation.

    `node` is its owner's TOML file; the node config (`flower-supernode --node-config`) names it where it is not given
    here.
    """
    app = ClientApp()

    def answer(kind: str, message: Message, context: Context) -> Message:
        speak()
        service = service_of(node or str(context.node_config.get("node", "")))
        header, enclosures = opened(message.content, service.limits(kind), f"the {kind}")
        return Message(content_of(service.answer(kind, header, enclosures)), reply_to=message)

    @app.query(TYPES[HELLO].partition(".")[2])
    def hello(message: Message, context: Context) -> Message:
        return answer(HELLO, message, context)

    @app.query(TYPES[JOIN].partition(".")[2])
    def join(message: Message, context: Context) -> Message:
        return answer(JOIN, message, context)

    @app.train(TYPES[TASK].partition(".")[2])
    def task(message: Message, context: Context) -> Message:
        return answer(TASK, message, context)

    return app


_SERVICES: dict[str, tuple[Owner, Stamp, NodeService]] = {}


def service_of(path: str) -> NodeService:
    """One for each owner's file, until the owner changes his mind or his data: then it is made anew."""
    if not path:
        raise ConfigError("the node config names no file: flower-supernode --node-config 'node=\"node.toml\"'")
    owner = read_owner(path)
    now = stamp(owner.files)
    known = _SERVICES.get(path)
    if known is None or known[:2] != (owner, now):
        known = _SERVICES[path] = owner, now, NodeService(owner)
    return known[2]


@cache
def speak() -> None:
    """What happens is said on stderr, where Flower's own log is."""
    root = logging.getLogger("accord")
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s accord %(levelname)s %(message)s", "%H:%M:%S"))
        root.addHandler(handler)
        root.setLevel(logging.INFO)
