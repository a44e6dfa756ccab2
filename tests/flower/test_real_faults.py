"""Real processes killed in the middle of a round: nodes, server, SuperLink. The bits stay those of a simulation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from accord.engine.run import run
from accord.federation import superlink
from accord.federation.folder import Folder, read_state
from accord.federation.processes import marked, waited
from accord.federation.up import bring_down
from support.federation import equal_trees, tiny_data
from support.flower import newest, small_config, write_site
from support.many_runs import begin, finished
from support.real_federation import command

pytestmark = [pytest.mark.federation, pytest.mark.timeout(3000)]

DATA = replace(tiny_data(), names=tuple(f"site-{k}" for k in range(4)), name="tiny")
ROUNDS = 12


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path / "federation")
    words = []
    for client, site in enumerate(DATA.names):
        file = write_site(tmp_path / "data", site, DATA, client)
        words += ["--data", f"{site}={file.parent / 'data.npz'}"]
    try:
        command("up", folder.path, *words)
        yield folder
    finally:
        bring_down(folder)


def kill(folder: Folder, *names: str) -> None:
    """kill -9 of these processes and all they started."""
    state = read_state(folder)
    assert state is not None
    chosen = [process for process in state.processes if process.name in names]
    assert len(chosen) == len(names)
    for pid in marked(process.mark for process in chosen):
        os.kill(pid, signal.SIGKILL)
    assert waited(lambda: not any(process.alive for process in chosen), 30)


def kill_part(folder: Folder, name: str, *, worker: bool) -> None:
    """kill -9 of what a node has started: its SuperExec, or the process that works messages off for that one."""
    state = read_state(folder)
    assert state is not None
    mark = next(process.mark for process in state.processes if process.name == name)
    found = [pid for pid in marked([mark]) if b"own_superexec" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in found}
    (chosen,) = [pid for pid, parent in parents.items() if (parent in found) is worker]
    os.kill(chosen, signal.SIGKILL)


def kill_server_app(folder: Folder) -> None:
    state = read_state(folder)
    assert state is not None
    link = next(process for process in state.processes if process.name == superlink.NAME)
    found = [pid for pid in marked([link.mark]) if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert found
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def lines(place: Path) -> list[dict[str, object]]:
    file = place / "scaffold" / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait_for_round(place: Path, number: int) -> None:
    """Until so many rounds are done: the next one is under way."""
    assert waited(lambda: len(lines(place)) >= number, 600), (place / "server.log").read_text()[-3000:]


def end(follower: subprocess.Popen[str]) -> None:
    follower.kill()
    with follower:
        pass


def test_whatever_is_killed_the_run_ends_with_the_bits_of_a_simulation(up: Folder, tmp_path: Path) -> None:
    config = small_config("scaffold", 4, rounds=ROUNDS, federation={"deadline": 1200.0, "gather": 120.0})
    place = tmp_path / "runs"
    follower = begin(up, place, {"scaffold": config})
    wait_for_round(place, 1)
    kill(up, "node site-1")
    command("up", up.path)
    wait_for_round(place, 4)
    kill(up, "node site-0", "node site-2")  # half of them
    command("up", up.path)
    wait_for_round(place, 5)
    kill_part(up, "node site-3", worker=True)  # the nodes mend that themselves
    kill_part(up, "node site-1", worker=False)
    wait_for_round(place, 7)
    kill_server_app(up)
    end(follower)
    follower = begin(up, place, {"scaffold": config})
    wait_for_round(place, 9)
    kill(up, superlink.NAME)
    end(follower)
    command("up", up.path)
    follower = begin(up, place, {"scaffold": config})
    finished(follower, place, 900)
    whole = run(replace(config, out=str(tmp_path), name="whole"), data=DATA)
    here, there = newest(whole.folder), newest(place / "scaffold")
    assert equal_trees(here.state, there.state)
    assert [line["round"] for line in lines(place)] == list(range(1, ROUNDS + 1)), "no round is counted twice"
    assert not any("missing" in line for line in lines(place))
    assert (whole.folder / "metrics.jsonl").read_bytes() == (place / "scaffold" / "metrics.jsonl").read_bytes()
