"""Filters between method and wire: a node applies them, the server undoes them, the bits are a simulation's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message

from accord.engine.run import run
from accord.flower.server import serve
from accord.wire.codec import decode, encode
from support.federation import equal_trees, tiny_data
from support.flower import FakeGrid, enclosed, fake_federation, header_of, newest, small_config, with_reply

DATA = replace(tiny_data((6, 9)), names=("site-0", "site-1"))
FILTERS: dict[str, dict[str, Any]] = {
    "top-k": {"compress": {"keep": 0.1}},
    "8 bits": {"compress": {"bits": 8}},
    "both": {"compress": {"keep": 0.2, "bits": 8}},
    "central": {"privacy": {"name": "central", "clip": 0.5, "noise": 1.0}},
}


def served(folder: Path, more: dict[str, Any], name: str = "apart", method: str = "fedavg") -> tuple[Any, FakeGrid]:
    grid = fake_federation(folder / name / "nodes", DATA)
    return serve(grid, small_config(method, 2, **more), folder / name / "run"), grid


@pytest.mark.parametrize("name", FILTERS)
def test_filters_give_the_bits_of_a_simulation(name: str, tmp_path: Path) -> None:
    config = small_config("fedavg", 2, **FILTERS[name])
    whole = run(replace(config, out=str(tmp_path), name="whole"), data=DATA)
    outcome, _ = served(tmp_path, FILTERS[name])
    assert equal_trees(newest(whole.folder).state, newest(outcome.folder).state)
    for here, there in zip(whole.metrics, outcome.metrics, strict=True):
        assert (here["bytes_up"], here["bytes_down"]) == (there["bytes_up"], there["bytes_down"])
    assert whole.summary.get("privacy") == outcome.summary.get("privacy")


def test_what_cannot_be_unpacked_is_dropped(tmp_path: Path) -> None:
    def meddle(node: int, asked: Message, said: Message) -> Message:
        if node == 100 and asked.metadata.message_type == "train.task" and header_of(asked)["task"] == "train":
            trees = decode(enclosed(said, "reply"))
            tree = next(name for name in trees if trees[name])
            wrong = {leaf: torch.randint(0, 100, (3,)).to(t.dtype) for leaf, t in trees[tree].items()}
            return with_reply(said, encode({**trees, tree: wrong}))
        return said

    grid = fake_federation(tmp_path / "nodes", DATA)
    grid.meddle = meddle
    outcome = serve(grid, small_config("fedavg", 2, **FILTERS["top-k"]), tmp_path / "run")
    assert outcome.summary["left_out"]["site-0"]["times"] == 3
    assert outcome.metrics[-1]["cohort"] == [1]


@pytest.mark.parametrize("name", ["local", "sample"])
def test_noise_against_the_server_is_drawn_from_the_nodes_own_secret(name: str, tmp_path: Path) -> None:
    """Two nodes with the same data and key, told the same, send different noise; asked again, each the same."""
    more = {"privacy": {"name": name, "clip": 0.5, "noise": 1.0}}
    first, grid = served(tmp_path, more, "first")
    second, _ = served(tmp_path, more, "second")
    assert not equal_trees(newest(first.folder).state, newest(second.folder).state)
    task = next(m for node, m in grid.sent if node == 100 and m.metadata.message_type == "train.task")
    one, two = (enclosed(grid.nodes[100].answer(task), "reply") for _ in range(2))
    assert one == two


def test_noise_that_is_found_from_a_budget_is_told_to_the_nodes(tmp_path: Path) -> None:
    outcome, grid = served(tmp_path, {"privacy": {"name": "local", "epsilon": 50.0}})
    joins = [header_of(m) for _, m in grid.sent if m.metadata.message_type == "query.join"]
    assert all(join["settings"]["privacy"]["epsilon"] == 0 for join in joins)
    assert joins[0]["settings"]["privacy"]["noise"] == outcome.summary["privacy"]["noise"] > 0
