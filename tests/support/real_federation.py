"""A small real federation: SuperLink and nodes as processes, with TLS and keys, started by the command itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import accord
from accord.cli.app import app
from accord.config import load_config
from accord.federation.folder import Folder, read_state
from accord.federation.processes import marked

SMALL = (
    "clients.fraction=1.0",
    "model.name=mlp",
    "model.hidden=[4]",
    "local.batch_size=8",
    "local.epochs=1",
    "device=cpu",
)


def samples(sites: int, seed: int = 0) -> list[dict[str, Any]]:
    """A few numbers of three classes for each site, for training and for testing."""
    made = []
    for site in range(sites):
        rng = np.random.default_rng(seed + site)
        y, test_y = rng.integers(0, 3, 16 + site), rng.integers(0, 3, 8)
        x, test_x = (rng.normal(size=(len(labels), 5)) + labels[:, None] for labels in (y, test_y))
        inputs = {"x": x.astype(np.float32), "test_x": test_x.astype(np.float32)}
        made.append({**inputs, "y": y, "test_y": test_y, "classes": np.array(3)})
    return made


def write_samples(folder: Path, sites: int) -> list[str]:
    """A file for each site, and what `accord federation up` is told of them."""
    words = []
    for site, arrays in enumerate(samples(sites)):
        np.savez(folder / f"own-{site}.npz", **arrays)
        words += ["--data", f"own-{site}={folder / f'own-{site}.npz'}"]
    return words


def simulated(folder: Path, sites: int, sets: Sequence[str]) -> Path:
    """The folder of the same run as a simulation, one client after the other."""
    parts = samples(sites)
    owners = [np.full(len(part["y"]), f"own-{site}") for site, part in enumerate(parts)]
    testers = [np.full(len(part["test_y"]), f"own-{site}") for site, part in enumerate(parts)]
    x, y, test_x, test_y = (np.concatenate([part[name] for part in parts]) for name in ("x", "y", "test_x", "test_y"))
    data = accord.from_arrays(x, y, np.concatenate(owners), (test_x, test_y, np.concatenate(testers)), 3, name="own")
    config = load_config(sets=[*SMALL, *sets, f"out={folder}", "name=simulated", "executor=sequential"])
    return accord.run(config, data=data).folder


def command(*words: object, code: int = 0) -> str:
    """What `accord federation ...` says, in this process."""
    done = CliRunner().invoke(app, ["federation", *map(str, words)])
    assert done.exit_code == code, f"{words}: {done.output}\n{done.exception!r}"
    return done.output


def started(folder: Path) -> list[int]:
    """The processes of a federation that live, however they were started."""
    state = read_state(Folder(folder))
    return [] if state is None else marked(process.mark for process in state.processes)


def settings(*sets: str) -> list[str]:
    """As options of the command."""
    return [word for text in (*SMALL, *sets) for word in ("--set", text)]
