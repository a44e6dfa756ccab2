"""A federation for minutes: who has no key or no TLS gets nothing, what is killed goes on, and nothing stays behind."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from accord.federation import control, running, superlink, supernode
from accord.federation.certificates import make_certificates, make_node_key
from accord.federation.folder import Folder, State, read_state
from accord.federation.node_file import read_node
from accord.federation.processes import Process, end, marked, planned, start, waited
from accord.federation.surroundings import surroundings
from accord.federation.up import bring_down, since
from support.real_federation import command, settings, simulated, started, write_samples

pytestmark = [pytest.mark.federation, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """Two nodes that stay for all tests here."""
    place = tmp_path_factory.mktemp("real")
    try:
        command("up", place / "federation", *write_samples(place, 2))
        yield Folder(place / "federation")
    finally:
        bring_down(Folder(place / "federation"))


def port_of(folder: Folder) -> int:
    state = read_state(folder)
    assert state is not None
    return state.port


@pytest.fixture
def stranger(up: Folder, tmp_path: Path) -> Path:
    """The file of a node that has everything but a key that was let in."""
    place = tmp_path / "stranger"
    shutil.copytree(up.site("own-0"), place, ignore=shutil.ignore_patterns("flower", "*.log", "node.key*", "memory"))
    make_node_key(place / "node.key")
    return place / "node.toml"


def said_by(file: Path, process: Process, seconds: float) -> str:
    waited(lambda: not process.alive, seconds)
    return since(file.parent / supernode.LOG, 0)


def test_a_key_that_was_not_let_in_gets_nothing(up: Folder, stranger: Path) -> None:
    before = len(control.nodes(up.home))
    there = replace(read_node(stranger).connection, server=f"127.0.0.1:{port_of(up)}")
    process = supernode.launch(stranger, there, superlink.free_port(), planned("stranger"))
    try:
        said = said_by(stranger, process, 60)
        assert not process.alive, said
    finally:
        end([process])
    assert supernode.REFUSED in said
    assert supernode.READY not in said
    assert len(control.nodes(up.home)) == before


def test_a_node_without_a_key_gets_nothing(up: Folder, stranger: Path) -> None:
    """Flower would register it by itself, were nodes not authenticated."""
    home = stranger.parent / "flower"
    home.mkdir()
    words = ["flower-supernode", "--superlink", f"127.0.0.1:{port_of(up)}", "--port", str(superlink.free_port())]
    words += ["--root-certificates", str(up.certificates.authority)]
    process = start(planned("stranger"), words, stranger.parent / supernode.LOG, surroundings(home))
    try:
        said = said_by(stranger, process, 60)
        assert not process.alive, said
    finally:
        end([process])
    assert supernode.READY not in said


def test_without_tls_there_is_no_word(up: Folder, stranger: Path) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(up), timeout=30)) as line:
        line.request("GET", "/health")
        with pytest.raises((http.client.HTTPException, OSError)):
            line.getresponse()
    home = stranger.parent / "flower"
    home.mkdir()
    words = ["flower-supernode", "--superlink", f"127.0.0.1:{port_of(up)}", "--port", str(superlink.free_port())]
    process = start(planned("x"), [*words, "--insecure"], stranger.parent / supernode.LOG, surroundings(home))
    try:
        assert supernode.READY not in said_by(stranger, process, 15)
    finally:
        end([process])


def test_a_server_with_another_certificate_is_not_believed(up: Folder, tmp_path: Path) -> None:
    other = make_certificates(tmp_path)
    state = State(port=port_of(up))
    assert superlink.answers(state, up.certificates.authority)
    assert not superlink.answers(state, other.authority)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/control/list-runs", 403), ("/v1/runtime/acquire-task", 403), ("/docs", 403), ("/health", 200)],
)
def test_operators_are_answered_on_this_machine_alone(up: Folder, path: str, status: int) -> None:
    """uvicorn believes a proxy on this machine who it is that calls: so somebody from elsewhere is played."""
    method = "GET" if path in ("/docs", "/health") else "POST"
    assert asked(up, method, path, {"X-Forwarded-For": "203.0.113.9"}) == status
    assert asked(up, method, path, {}) != 403


def asked(up: Folder, method: str, path: str, headers: dict[str, str]) -> int:
    context = ssl.create_default_context(cafile=str(up.certificates.authority))
    line = http.client.HTTPSConnection("127.0.0.1", port_of(up), timeout=30, context=context)
    with closing(line):
        line.request(method, path, headers=headers)
        return line.getresponse().status


def test_runs_one_after_the_other(up: Folder) -> None:
    """Names that are not taken, a table, and the same bits as a simulation for a personal method too."""
    for name in ("ditto-s0", "ditto-s0-2"):
        said = command("run", "-f", up.path, "-a", "ditto", "--rounds", 1, *settings())
        assert name in said
    same = simulated(up.runs, 2, ["algorithm.name=ditto", "rounds=1"])
    for name in ("ditto-s0", "ditto-s0-2"):
        assert (up.runs / name / "metrics.jsonl").read_bytes() == (same / "metrics.jsonl").read_bytes()


def test_the_superlink_is_killed_and_the_run_goes_on(up: Folder) -> None:
    run = up.runs / "scaffold-s0"
    state = read_state(up)
    assert state is not None
    link = next(process for process in state.processes if process.name == superlink.NAME)

    def kill() -> None:
        assert waited(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0, 300)
        os.kill(link.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    said = command("run", "-f", up.path, "-a", "scaffold", "--rounds", 6, *settings(), code=1)
    killer.join()
    assert f"--resume {run}" in "".join(said.split("\n"))
    assert "down" in command("status", up.path, code=1)
    assert "up: 2 nodes" in command("up", up.path)
    command("run", "-f", up.path, "--resume", run)
    same = simulated(up.runs / "again", 2, ["algorithm.name=scaffold", "rounds=6"])
    for file in ("metrics.jsonl", "sites.csv", "model/model.safetensors"):
        assert (run / file).read_bytes() == (same / file).read_bytes(), file


def test_a_killed_node_comes_back_by_the_same_command(up: Folder) -> None:
    state = read_state(up)
    assert state is not None
    node = next(process for process in state.processes if process.name == "node own-1")
    os.kill(node.pid, signal.SIGKILL)
    assert waited(lambda: not node.alive, 10)
    assert re.search(r"own-1 +down", command("status", up.path, code=1))
    assert "node of own-1 is in" in command("up", up.path)
    assert command("status", up.path).count("  up") == 3


def test_ctrl_c_stops_the_run_and_says_how_to_go_on(up: Folder) -> None:
    words = [sys.executable, "-m", "accord", "federation", "run", "-f", str(up.path), "-a", "fedavg", "--rounds", "500"]
    run = up.runs / "fedavg-s0"
    with subprocess.Popen([*words, *settings()], stderr=subprocess.PIPE, text=True, env=surroundings(up.home)) as asked:
        assert waited(lambda: (run / "metrics.jsonl").exists(), 300)
        asked.send_signal(signal.SIGTERM)  # as Ctrl-C, which background processes do not hear
        _, said = asked.communicate(timeout=120)
    assert asked.returncode == 143
    assert f"--resume {run}" in " ".join(said.split())
    time.sleep(1)
    lines = (run / "metrics.jsonl").read_bytes()
    time.sleep(5)
    assert (run / "metrics.jsonl").read_bytes() == lines, "nobody works on it any more"


def test_a_site_that_is_shut_out_gets_nothing_any_more(up: Folder) -> None:
    """Its node ends, its key is refused, and a run begins without it."""
    assert "own-1 is shut out" in command("expel", "own-1", "-f", up.path)
    assert "own-1" not in command("status", up.path)
    file = up.site("own-1") / "node.toml"
    said = (file.parent / supernode.LOG).stat().st_size
    there = replace(read_node(file).connection, server=f"127.0.0.1:{port_of(up)}")
    process = supernode.launch(file, there, superlink.free_port(), planned("own-1"))
    try:
        assert waited(lambda: not process.alive, 60)
    finally:
        end([process])
    words = since(file.parent / supernode.LOG, said)
    assert supernode.REFUSED in words
    assert supernode.READY not in words
    command("run", "-f", up.path, "-a", "fedavg", "--rounds", 1, "--name", "alone", *settings())
    assert "own-1" not in (up.runs / "alone" / "sites.csv").read_text()
    assert "was shut out, and stays so" in command(
        "admit", "own-1", file.parent / "node.key.pub", "-f", up.path, code=2
    )


def test_down_leaves_no_process(up: Folder) -> None:
    state = read_state(up)
    assert state is not None
    assert len(started(up.path)) >= 4
    command("down", up.path)
    assert marked(process.mark for process in state.processes) == []
    assert not any(process.alive for process in state.processes)


def test_a_killed_up_leaves_nothing(tmp_path: Path) -> None:
    """kill -9 of the command itself, in the middle of it."""
    words = [sys.executable, "-m", "accord", "federation", "up", str(tmp_path / "f"), *write_samples(tmp_path, 2)]
    with subprocess.Popen(words, env=surroundings(tmp_path), stdout=subprocess.DEVNULL) as asked:
        folder = Folder(tmp_path / "f")
        assert waited(lambda: folder.log.exists() and bool(started(folder.path)), 120)
        asked.kill()
    assert waited(lambda: not started(folder.path), 60)


def test_a_demonstration_cleans_up(tmp_path: Path) -> None:
    said = command("demo", tmp_path / "demo", "--nodes", 2, "--rounds", 1, "-a", "fedavg")
    assert "site-1" in said
    assert "down: all processes have ended" in said
    assert started(tmp_path / "demo") == []


EVIL = """
import os, pathlib
from accord.flower import client_app, server_app
home = pathlib.Path(os.environ["FLWR_HOME"])
(home.parent / "code-was-run").touch()
server = server_app()
client = client_app()
"""


def test_code_that_is_sent_is_run_by_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app that leaves a trace where it is imported: at the server, whose operator started it, and nowhere else."""
    evil = tmp_path / "evil"
    shutil.copytree(running.APP, evil, ignore=shutil.ignore_patterns("__pycache__"))
    (evil / "accord_app.py").write_text(EVIL)
    monkeypatch.setattr(running, "APP", evil)
    folder = Folder(tmp_path / "f")
    try:
        command("up", folder.path, *write_samples(tmp_path, 2))
        command("run", "-f", folder.path, "-a", "fedavg", "--rounds", 1, *settings())
    finally:
        bring_down(folder)
    assert (folder.server / "code-was-run").exists()
    assert [str(path) for path in (folder.path / "nodes").rglob("code-was-run")] == []
    assert not list((folder.path / "nodes").rglob("accord_app.py"))
