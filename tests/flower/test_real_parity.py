"""Every method on a real SuperLink with TLS and nodes with keys: the bits of a simulation, state and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accord.core.methods import ALGORITHMS
from accord.engine.run import run
from accord.federation.folder import Folder
from accord.federation.up import bring_down
from accord.flower.remembered import run_memory
from accord.flower.roster import read_roster
from accord.wire.codec import decode
from support.federation import equal_trees, tiny_data
from support.flower import ALLOWED, NETWORKS, newest, small_config, write_site
from support.many_runs import begin, finished
from support.real_federation import command

pytestmark = [pytest.mark.federation, pytest.mark.timeout(3000)]

DATA = replace(tiny_data((12, 15)), names=("site-0", "site-1"), name="tiny")
METHODS = [name for name in ALGORITHMS if name not in ("centralized", "fedbuff")]


def config_of(name: str) -> Any:
    more = {"model": NETWORKS[name]} if name in NETWORKS else {}
    return small_config(name, 2, evaluate={"every": 3}, federation={"gather": 120.0}, **more)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of all methods' runs on one standing federation."""
    place = tmp_path_factory.mktemp("parity")
    folder = Folder(place / "federation")
    words = []
    for client, site in enumerate(DATA.names):
        file = write_site(place / "data", site, DATA, client)
        words += ["--data", f"{site}={file.parent / 'data.npz'}"]
    try:
        command("up", folder.path, *words)
        for site in DATA.names:
            file = folder.site(site) / "node.toml"
            text = file.read_text().replace("allow = []", ALLOWED)
            file.write_text(text.replace("[data]\n", '[data]\ncalled = "tiny"\n'))
        finished(begin(folder, place / "runs", {name: config_of(name) for name in METHODS}), place / "runs", 2800)
        yield place / "runs"
    finally:
        bring_down(folder)


@pytest.mark.parametrize("name", METHODS)
def test_a_real_federation_gives_the_bits_of_a_simulation(name: str, runs: Path, tmp_path: Path) -> None:
    whole = run(replace(config_of(name), out=str(tmp_path), name="whole"), data=DATA)
    here, there = newest(whole.folder), newest(runs / name)
    assert equal_trees(here.state, there.state)
    assert here.clients.keys() == there.clients.keys()
    roster = read_roster(runs / name)
    for client, (file, _) in here.clients.items():
        kept = decode((whole.folder / "checkpoint" / "clients" / file).read_bytes())
        node = runs.parent / "federation" / "nodes" / roster.name_of(int(client)) / "memory"
        last = max(run_memory(node, roster.run).versions())
        assert equal_trees(kept, run_memory(node, roster.run).memory(last, there.clients[client][1]))
