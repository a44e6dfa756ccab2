"""One real federation, every time: two nodes, TLS, keys, a method with memory; to the bits of a simulation."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from accord.federation.processes import marked
from support.real_federation import command, settings, simulated, started, write_samples

pytestmark = pytest.mark.timeout(600)


def test_a_federation_gives_the_bits_of_a_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder, run = tmp_path / "federation", tmp_path / "federation" / "runs" / "scaffold-s0"
    try:
        assert "up: 2 nodes" in command("up", folder, *write_samples(tmp_path, 2))
        assert command("status", folder).count("  up") == 3
        known = json.loads((folder / "federation.json").read_text())["processes"]
        said = command("run", "-f", folder, "-a", "scaffold", "--rounds", 2, *settings())
    finally:
        ended = command("down", folder)
    assert "down: 3 processes ended" in ended
    assert marked(process["mark"] for process in known) == []
    assert started(folder) == []
    assert "own-1" in said, "the table of sites"
    same = simulated(tmp_path, 2, ["algorithm.name=scaffold", "rounds=2"])
    for file in ("metrics.jsonl", "sites.csv", "model/model.safetensors"):
        assert (run / file).read_bytes() == (same / file).read_bytes(), file
    assert not (tmp_path / "home" / ".flwr").exists(), "Flower has left nothing outside"
    assert os.stat(folder / "nodes" / "own-0" / "node.key").st_mode & 0o077 == 0
