"""Damaged input of every kind gives our own errors in a sentence, or exactly what sound input gives.

`make test-hostile CASES=20000 SEED=7` chooses how many and which; a few hundred are tried with every other test.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.config import config_hash, from_dict, load_config, to_dict, to_toml
from accord.data.federated import Dataset
from accord.wire.codec import decode, encode
from accord.wire.format import spec_of
from support import published
from support.fuzz import Attack, Case, mutated, refused
from support.messages import parts, same_bits, sealed
from support.texts import odd_sets, odd_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork, and Linux' limits")


def sound(config: accord.RunConfig) -> None:
    """What was accepted reads back to itself, and has a hash."""
    assert from_dict(to_dict(config)) == config
    path = Path("again.toml")
    path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(path) == config
    assert len(config_hash(config)) == 64


def configurations(draw: random.Random) -> str:
    path = Path("odd.toml")
    path.write_bytes(odd_text(draw))
    outcome, config = refused(lambda: load_config(path))
    if config is not None:
        sound(config)
    return outcome


def changes(draw: random.Random) -> str:
    sets = odd_sets(draw)
    outcome, config = refused(lambda: load_config(None, sets))
    if config is not None:
        sound(config)
    return outcome


TREES = {
    "control": {"w": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(7)},
    "model": {"b": torch.tensor([True, False]), "half": torch.ones(2, dtype=torch.bfloat16), "z": torch.zeros(0, 2)},
}
MESSAGE = encode(TREES)
HEADER, VALUES = parts(MESSAGE)


def messages(draw: random.Random) -> str:
    """Damaged on the way, or by an author whose checksum holds."""
    data = mutated(MESSAGE, draw) if draw.random() < 0.5 else sealed(mutated(HEADER, draw), VALUES)
    outcome, trees = refused(lambda: decode(data, expected=spec_of(TREES)))
    assert trees is None or same_bits(trees, TREES)
    return outcome


DATA: Dataset = accord.from_arrays(
    np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32), np.arange(30) % 2, name="own", seed=0
)
SETTINGS = [
    "rounds=3", "partition.name=iid", "partition.clients=2", "clients.count=2", "executor=sequential",
    "model.name=linear",
    "algorithm.name=scaffold", "local.epochs=1", "evaluate.clients=false", "partition.test=shared",
]  # fmt: skip
FILES = (
    *("run.json", "server.safetensors", "0-*.safetensors", "identity.json", "metrics.jsonl", "config.toml"),
    *("timings.jsonl", "summary.json"),
)


class Stop(accord.Observer):
    def round_ended(self, round: int, record: Any) -> None:
        if round == 2:
            raise KeyboardInterrupt


def result(folder: Path) -> dict[str, Any]:
    """What a run came to, without what depends on the clock."""
    last = sorted((folder / "checkpoint").glob("round-000003/server.safetensors"))
    kept = [folder / "metrics.jsonl", *last, *sorted((folder / "checkpoint" / "clients").glob("*-3.*"))]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def numbers(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name not in ("seconds", "digest")}


def other_digit(data: bytes, draw: random.Random) -> bytes:
    """Still a number, and another one: what only a checksum can tell."""
    places = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    if not places:
        return data
    place = draw.choice(places)
    return (
        data[:place]
        + draw.choice(b"0123456789".replace(data[place : place + 1], b"")).to_bytes(1, "big")
        + data[place + 1 :]
    )


def run_folders(place: Path) -> Case:
    """Of a run that was stopped, and of one that came to its end."""
    whole = accord.run(load_config(None, [*SETTINGS, f"out={place}", "name=finished"]), data=DATA)
    with pytest.raises(KeyboardInterrupt):
        accord.run(load_config(None, [*SETTINGS, f"out={place}", "name=stopped"]), data=DATA, observers=[Stop()])
    wanted = result(whole.folder)

    def case(draw: random.Random) -> str:
        name = draw.choice(["stopped", "stopped", "finished"])
        shutil.rmtree("run", ignore_errors=True)
        folder = Path(shutil.copytree(place / name, "run"))
        before = {}
        for _ in range(draw.choice([1, 1, 2])):
            path = draw.choice(sorted(folder.rglob(draw.choice(FILES))) or [folder / "metrics.jsonl"])
            before.setdefault(path, path.read_bytes())
            damaged = other_digit if path.suffix != ".safetensors" and draw.random() < 0.3 else mutated
            path.write_bytes(damaged(path.read_bytes(), draw))
        outcome, resumed = refused(lambda: accord.resume(folder, data=DATA))
        if resumed is None and draw.random() < 0.3:  # nothing else was harmed: mended, it goes on
            for path, data in before.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            resumed = accord.resume(folder, data=DATA)
        if resumed is not None:
            assert result(folder) == wanted
            assert numbers(resumed.summary) == numbers(whole.summary)
            assert resumed.metrics == whole.metrics
        return f"{name}, {outcome}"

    return case


def data_files(place: Path) -> Case:
    """As they are published, and as pictures in folders."""
    options: dict[str, dict[str, str]] = {"png": {"path": "mine"}}
    known = {}
    for kind, (name, files, _) in published.KINDS.items():
        for file, data in files.items():
            path = place / kind / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        known[kind] = published.load(name, place / kind, **options.get(kind, {}))

    def case(draw: random.Random) -> str:
        kind = draw.choice(list(published.KINDS))
        name, files, has_checksum = published.KINDS[kind]
        path = place / kind / draw.choice(list(files))
        data = path.read_bytes()
        path.write_bytes(mutated(data, draw))
        try:
            outcome, loaded = refused(lambda: published.load(name, place / kind, **options.get(kind, {})))
        finally:
            path.write_bytes(data)
        if loaded is not None:
            for mine, theirs in ((loaded.train, known[kind].train), (loaded.test, known[kind].test)):
                assert 0 <= int(mine.y.min()) <= int(mine.y.max()) < known[kind].num_classes
                assert mine.x.shape[1:] == theirs.x.shape[1:]
                if has_checksum:
                    assert torch.equal(mine.x, theirs.x)
                    assert torch.equal(mine.y, theirs.y)
        return f"{kind}, {outcome}"

    return case


# name: what makes the case, and its share of all
TARGETS: dict[str, tuple[Callable[[Path], Case], float]] = {
    "configuration": (lambda place: configurations, 0.2),
    "--set": (lambda place: changes, 0.2),
    "message": (lambda place: messages, 0.2),
    "run folder": (run_folders, 0.2),
    "data file": (data_files, 0.2),
}


def attack(count: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> Attack:
    made = Attack(seed)
    with tempfile.TemporaryDirectory() as place:
        monkeypatch.chdir(place)
        for name, (make, share) in TARGETS.items():
            made.carry_out(name, make(Path(place) / name.replace(" ", "-")), round(count * share))
    return made


def test_a_few_damaged_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = attack(400, 0, monkeypatch)
    assert found.wrong == []
    assert sum(found.outcomes.values()) == 400


@pytest.mark.hostile
@pytest.mark.timeout(3600)
def test_many_damaged_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    count = int(os.environ.get("ACCORD_CASES", "20000"))
    found = attack(count, int(os.environ.get("ACCORD_SEED", "0")), monkeypatch)
    print(f"\n{found.report()}")
    assert found.wrong == [], "\n".join(found.wrong[:20])
    assert sum(found.outcomes.values()) >= count - 5
