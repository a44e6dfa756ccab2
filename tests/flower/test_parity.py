"""Every method over Flower's messages gives the bits of a simulation: the server's state, and what clients remember."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accord.core.methods import ALGORITHMS
from accord.engine.run import run
from accord.flower.remembered import run_memory
from accord.flower.roster import read_roster
from accord.flower.server import serve
from accord.wire.codec import decode
from support.federation import equal_trees, tiny_data
from support.flower import ALLOWED, NETWORKS, fake_federation, newest, small_config


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("centralized", "fedbuff")])
def test_nodes_give_the_bits_of_a_simulation(name: str, tmp_path: Path) -> None:
    data = replace(tiny_data((6, 12, 15)), names=("site-0", "site-1", "site-2"))
    more: dict[str, Any] = {"clients": {"count": 2}}
    config = small_config(name, 3, **more)
    if name in NETWORKS:
        config = small_config(name, 3, **more, model=NETWORKS[name])
    whole = run(replace(config, out=str(tmp_path), name="whole"), data=data)
    grid = fake_federation(tmp_path / "nodes", data, more=ALLOWED)
    serve(grid, config, tmp_path / "apart")
    here, there = newest(whole.folder), newest(tmp_path / "apart")
    assert here.round == there.round == 3
    assert equal_trees(here.state, there.state)
    assert here.clients.keys() == there.clients.keys()
    roster = read_roster(tmp_path / "apart")
    for client, (file, _) in here.clients.items():
        kept = decode((whole.folder / "checkpoint" / "clients" / file).read_bytes())
        memory = run_memory(tmp_path / "nodes" / f"site-{client}" / "memory", roster.run)
        last = max(memory.versions())
        assert there.clients[client][0] == f"{client}-{last[0]}.{last[1]}.safetensors"
        assert equal_trees(kept, memory.memory(last, there.clients[client][1]))
