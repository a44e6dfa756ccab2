"""A node with a registered key that means harm: what it sends is dropped with the reason, and the model is unharmed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from accord.federation import control, superlink, supernode
from accord.federation.folder import Folder, read_state
from accord.federation.node_file import read_node
from accord.federation.processes import Process, end, planned, start, waited
from accord.federation.sites import add_site
from accord.federation.up import bring_down
from support import hostile_superexec
from support.federation import equal_trees, tiny_data
from support.flower import newest, small_config, write_site
from support.many_runs import begin, finished
from support.real_federation import command

pytestmark = [pytest.mark.federation, pytest.mark.timeout(3000)]

DATA = replace(tiny_data((30, 40, 50)), names=("site-0", "site-1", "site-2"), name="tiny")
HARMS = {
    "nan": "infinite or no numbers",
    "wrong shapes": "is not the one expected",
    "old round": "the answer's version is [1, 0]",
    "other client": "the answer's client is 0",
    "huge": "larger than the bytes allowed",
    "says 10 GiB": "not a safetensors message of Accord",
    "is 10 GiB": "larger than the bytes allowed",
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Folder, Path]]:
    """Two honest nodes and one that is none; the file that says what it does."""
    place = tmp_path_factory.mktemp("harm")
    folder, harm = Folder(place / "federation"), place / "harm"
    harm.write_text("nothing")
    words = []
    for client, site in enumerate(DATA.names):
        file = write_site(place / "data", site, DATA, client)
        words += ["--data", f"{site}={file.parent / 'data.npz'}"]
    hostile: list[Process] = []
    try:
        command("up", folder.path, *words[:4])
        add_site(folder, "site-2", {"path": words[5].partition("=")[2]}, "127.0.0.1:1")
        control.register(folder.home, [folder.admitted / "site-2.pub"])
        hostile.append(launched(folder, harm))
        yield folder, harm
    finally:
        end(hostile)
        bring_down(folder)


def launched(folder: Folder, harm: Path) -> Process:
    """The third site's node, with its own key, and a program of its own for what it says."""
    file = folder.site("site-2") / "node.toml"
    state = read_state(folder)
    assert state is not None
    there = replace(read_node(file).connection, server=state.address)
    words, log, environment = supernode.prepared(file, there, superlink.free_port())
    script = file.parent / "flower" / "commands" / "flower-superexec"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m support.hostile_superexec "$@"\n')
    tests = Path(hostile_superexec.__file__).parent.parent
    environment["PYTHONPATH"] = os.pathsep.join([str(tests), environment.get("PYTHONPATH", "")])
    environment[hostile_superexec.HARM] = str(harm)
    said = log.stat().st_size if log.exists() else 0
    process = start(planned("hostile"), words, log, environment)
    assert waited(lambda: supernode.READY in log.read_text()[said:], 120), log.read_text()[-2000:]
    return process


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("name", HARMS)
def test_harm_is_dropped_and_the_model_is_unharmed(name: str, up: tuple[Folder, Path], runs: Path) -> None:
    folder, harm = up
    section = {"largest_message_mb": 1, "gather": 120.0, "keys": str(folder.admitted), "sites": list(DATA.names)}
    harm.write_text(name)
    place = runs / name.replace(" ", "-")
    config = small_config("fedavg", 3, rounds=4, federation=section)
    finished(begin(folder, place, {"run": config}), place, 600)
    summary = json.loads((place / "run" / "summary.json").read_text())
    assert HARMS[name] in summary["left_out"]["site-2"]["why"]
    assert list(summary["left_out"]) == ["site-2"]
    if name == "old round":  # its first answer is of the first round indeed
        assert summary["left_out"]["site-2"]["times"] == 3
        return
    assert summary["left_out"]["site-2"]["times"] == 4
    assert summary["accuracy"] > 0.6
    for other in runs.iterdir():
        if other.name not in ("old-round", place.name):
            theirs = newest(other / "run").state
            assert equal_trees(newest(place / "run").state, theirs), "the mean of the two honest answers"


def test_a_forged_name_is_not_let_in(up: tuple[Folder, Path], tmp_path: Path) -> None:
    folder, harm = up
    harm.write_text("forged name")
    section = {"nodes": 2, "gather": 120.0, "keys": str(folder.admitted)}
    place = tmp_path / "runs"
    finished(begin(folder, place, {"run": small_config("fedavg", 2, rounds=2, federation=section)}), place, 600)
    record = json.loads((place / "run" / "federation.json").read_text())
    assert [site["site"] for site in record["sites"]] == ["site-0", "site-1"]
