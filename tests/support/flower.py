"""A federation without processes: Flower's messages, handed to the client app of every node in this process."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from accord.config import RunConfig, config_hash, from_dict
from accord.data.federated import FederatedData
from accord.engine.checkpoint import Checkpoints, Snapshot
from accord.engine.folder import read_config
from accord.flower import apps, client_app
from accord.flower.versions import Versions

NETWORKS: dict[str, Any] = {"fedfusion": {"name": "mcmahan_cnn"}, "fedbn": {"name": "fedbr_cnn"}}
ALLOWED = 'allow = ["fedmeta.contribute", "fedmix.means", "naivemix.means", "fedbr.contribute"]'
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def write_site(folder: Path, site: str, data: FederatedData, client: int, more: str = "", test: bool = True) -> Path:
    """A client of a simulation as a node of its own: its samples in a file, its owner's decisions in another."""
    place = folder / site
    place.mkdir(parents=True, exist_ok=True)
    x, y = data.client(client)
    test_x, test_y = data.client(client, "test")
    arrays = {"x": x.numpy(), "y": y.numpy(), "classes": np.array(data.num_classes)}
    if test:
        arrays |= {"test_x": test_x.numpy(), "test_y": test_y.numpy()}
    np.savez(place / "data.npz", **arrays)
    path = place / "node.toml"
    path.write_text(f'site = "{site}"\n{more}\n[data]\npath = "data.npz"\ncalled = "{data.name}"\n')
    return path


class FakeNode:
    """A SuperNode: an owner's file, and a number that may change."""

    def __init__(self, path: Path) -> None:
        self.path, self.key = path, b""
        self.app = client_app(node=str(path))

    def answer(self, message: Message) -> Message:
        context = Context(1, 1, {}, RecordDict(), {}, 1)
        return self.app(message, context)


class FakeGrid:
    """Nodes answer when they are looked for. `meddle` may change, drop or add to an answer on its way."""

    def __init__(self, nodes: dict[int, FakeNode]) -> None:
        self.nodes = nodes
        self.sent: list[tuple[int, Message]] = []
        self.waiting: dict[str, tuple[int, Message]] = {}
        self.meddle: Callable[[int, Message, Message], Message | None] = lambda node, asked, said: said
        self.numbers = itertools.count(1)

    def get_nodes(self) -> Iterable[Any]:
        return [SimpleNamespace(node_id=number, public_key=node.key) for number, node in self.nodes.items()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        tickets = []
        for message in messages:
            ticket = f"message-{next(self.numbers)}"
            message.metadata.__dict__["_message_id"] = ticket
            self.waiting[ticket] = message.metadata.dst_node_id, message
            self.sent.append((message.metadata.dst_node_id, message))
            tickets.append(ticket)
        return tickets

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        answers = []
        for ticket in message_ids:
            if ticket not in self.waiting:
                continue
            node, message = self.waiting[ticket]
            if node not in self.nodes:
                del self.waiting[ticket]
                answers.append(Message(Error(5, "node unavailable"), reply_to=message))
                continue
            said = self.meddle(node, message, self.nodes[node].answer(copy.copy(message)))
            if said is not None:
                del self.waiting[ticket]
                answers.append(said)
        return answers


def fake_federation(folder: Path, data: FederatedData, sites: Iterable[str] | None = None, more: str = "") -> FakeGrid:
    """A node per client of the data, called as the sites are."""
    apps._SERVICES.clear()
    names = list(sites or (f"site-{client}" for client in range(len(data))))
    nodes = {100 + k: FakeNode(write_site(folder, name, data, k, more)) for k, name in enumerate(names)}
    return FakeGrid(nodes)


def small_config(method: str, nodes: int, **more: Any) -> RunConfig:
    """Three rounds of a method on a tiny network."""
    given: dict[str, Any] = {
        "rounds": 3,
        "device": "cpu",
        "executor": "sequential",
        "model": {"name": "mlp", "hidden": [5]},
        "algorithm": {"name": method},
        "local": {"epochs": 2, "batch_size": 4, "lr": 0.1},
        "clients": {"fraction": 1.0},
        "federation": {"nodes": nodes, "gather": 5.0},
    }
    for name, value in more.items():
        merged = isinstance(value, dict) and name != "model"
        given[name] = {**given.get(name, {}), **value} if merged else value
    return from_dict(given)


def header_of(message: Message) -> dict[str, Any]:
    """What a message is about."""
    return dict(json.loads(str(message.content["accord"]["header"])))


def enclosed(message: Message, name: str) -> bytes:
    """The bytes of an enclosure."""
    return bytes(message.content[name]["trees"])  # type: ignore[arg-type]


def newest(folder: Path) -> Snapshot:
    """The newest checkpoint of a run, wherever its clients' memory lies."""
    found, _ = Checkpoints(folder / "checkpoint", config_hash(read_config(folder)), 2).newest(Versions())
    assert found is not None
    return found


def with_reply(message: Message, data: bytes) -> Message:
    """The answer with other bytes for its reply."""
    message.content["reply"] = ArrayRecord({"trees": Array("uint8", (len(data),), "safetensors", data)})
    return message
