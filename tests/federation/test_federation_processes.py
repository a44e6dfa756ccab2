"""Processes are found again, end for sure, and nobody else's is touched. Dummies stand in for Flower's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accord.errors import RunError
from accord.federation import processes
from accord.federation.bell import SELDOM, Waiting, ringing
from accord.federation.own_supernode import Keeper, Naps
from accord.federation.processes import Process, began, end, exit_code, last_lines, marked, planned, start, waited
from accord.federation.sooner import fetch_sooner
from accord.federation.surroundings import surroundings
from accord.federation.watch import keep_watch

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="marks are found in /proc")

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# A parent whose child leaves its session, as the SuperLink's does, and that hears no signal but the last.
STUBBORN = """
    import signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print("ready", child.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Process]]:
    """Ended after the test, whatever it does."""
    known: list[Process] = []
    yield known
    end(known, grace=0.1)


def begin(known: list[Process], tmp_path: Path, command: list[str], name: str = "dummy") -> Process:
    plan = planned(name)
    known.append(plan)
    process = start(plan, command, tmp_path / f"{name}.log", surroundings(tmp_path))
    known.append(process)
    return process


def test_a_process_is_known_by_number_and_beginning(tmp_path: Path, started: list[Process]) -> None:
    process = begin(started, tmp_path, SLEEP)
    assert process.alive
    assert exit_code(process) is None
    assert waited(lambda: marked([process.mark]) == [process.pid], 5), "it has no surroundings while it begins"
    assert Process(**process.as_json()) == process
    end([process])
    assert not process.alive
    assert exit_code(process) == -signal.SIGTERM
    assert marked([process.mark]) == []
    end([process])  # once more is no harm


def test_a_stranger_with_the_same_number_is_left_alone(tmp_path: Path, started: list[Process]) -> None:
    stranger = begin(started, tmp_path, SLEEP)
    mistaken = Process("dummy", "0" * 32, stranger.pid, "some other moment")
    assert not mistaken.alive
    end([mistaken], grace=0.2)
    assert stranger.alive


def test_remains_are_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    assert waited(lambda: began(child.pid) is None, 20), "it has ended, and nobody has taken its exit code"
    child.wait()
    assert began(child.pid) is None


def test_what_left_the_group_and_what_is_deaf_ends_too(tmp_path: Path, started: list[Process]) -> None:
    process = begin(started, tmp_path, [sys.executable, "-c", textwrap.dedent(STUBBORN)])
    log = tmp_path / "dummy.log"
    assert waited(lambda: "ready" in log.read_text(), 20)
    child = int(log.read_text().split()[1])
    assert os.getsid(child) != os.getsid(process.pid)
    assert waited(lambda: marked([process.mark]) == sorted([process.pid, child]), 5)
    end([process], grace=0.3)
    assert began(child) is None
    assert not process.alive


def test_what_a_dead_process_has_left_is_found_by_its_mark(tmp_path: Path, started: list[Process]) -> None:
    process = begin(started, tmp_path, [sys.executable, "-c", textwrap.dedent(STUBBORN)])
    log = tmp_path / "dummy.log"
    assert waited(lambda: "ready" in log.read_text(), 20)
    child = int(log.read_text().split()[1])
    os.kill(process.pid, signal.SIGKILL)
    assert waited(lambda: not process.alive, 5)
    assert waited(lambda: marked([process.mark]) == [child], 5)
    end([process], grace=0.3)
    assert began(child) is None


def test_one_killed_between_writing_down_and_starting_is_found(tmp_path: Path, started: list[Process]) -> None:
    """All that is known is the plan."""
    process = begin(started, tmp_path, SLEEP)
    plan = Process(process.name, process.mark)
    assert not plan.alive
    end([plan])
    assert not process.alive


def test_what_does_not_end_is_named(tmp_path: Path, started: list[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    process = begin(started, tmp_path, SLEEP)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "GRACE", 0.1)
        patch.setattr(processes, "_signal", lambda pid, kind: None)
        patch.setattr(processes, "_signal_group", lambda pid, kind: None)
        with pytest.raises(RunError, match=rf"processes {process.pid} do not end: end them by hand"):
            end([process], grace=0.1)


def test_logs_are_the_owners_and_grow(tmp_path: Path, started: list[Process]) -> None:
    for word in ("one", "two"):
        process = begin(started, tmp_path, [sys.executable, "-c", f"print('{word}')"])
        assert waited(lambda p=process: not p.alive, 20)
    log = tmp_path / "dummy.log"
    assert log.read_text() == "one\ntwo\n"
    assert log.stat().st_mode & 0o077 == 0
    assert last_lines(log) == "one / two"
    assert last_lines(tmp_path / "absent") == "nothing"


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot start /no/such/command: No such file"):
        start(planned("x"), ["/no/such/command"], tmp_path / "x.log", surroundings(tmp_path))
    with pytest.raises(RunError, match="cannot write"):
        start(planned("x"), SLEEP, tmp_path / "absent" / "x.log", surroundings(tmp_path))


def test_the_watchman_ends_what_may_not_stay(tmp_path: Path, started: list[Process]) -> None:
    first, second = (begin(started, tmp_path, SLEEP, name) for name in ("first", "second"))
    said = [f"{word}\n" for word in (_line(first), _line(second))]
    keep_watch([*said, "stay\n"])
    assert first.alive
    assert second.alive
    keep_watch([*said, "stay\n", said[1]])  # what is said after leave was given counts again
    assert not first.alive
    assert not second.alive


def _line(process: Process) -> str:
    import json

    return json.dumps(process.as_json())


def test_a_killed_command_takes_its_processes_with_it(tmp_path: Path, started: list[Process]) -> None:
    """kill -9 of a command under `watched`: nobody but the watchman can act."""
    command = f"""
        import json, sys, time
        from pathlib import Path
        from accord.federation.processes import planned, start
        from accord.federation.surroundings import surroundings
        from accord.federation.watch import watched
        with watched() as watch:
            plan = planned("dummy")
            watch.over(plan)
            process = start(plan, {SLEEP!r}, Path("inner.log"), surroundings(Path("home")))
            print(json.dumps(process.as_json()), flush=True)
            time.sleep(600)
    """
    words = [sys.executable, "-c", textwrap.dedent(command)]
    outer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=surroundings(tmp_path))
    with outer:
        import json

        assert outer.stdout is not None
        inner = Process(**json.loads(outer.stdout.readline()))
        started.append(inner)
        assert inner.alive
        outer.kill()
    assert waited(lambda: not inner.alive, 20)


def test_surroundings_are_flowers_own_and_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_HOME", "/home/somebody/.flwr")
    monkeypatch.setenv("FLWR_OIDC_ENABLED", "1")
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    monkeypatch.setenv("NO_PROXY", "example.org")
    made = surroundings(tmp_path, tmp_path / "commands")
    assert {name: value for name, value in made.items() if name.startswith("FLWR_")} == {
        "FLWR_HOME": str(tmp_path),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    assert "FORWARDED_ALLOW_IPS" not in made
    assert made["PATH"].split(os.pathsep)[:2] == [str(tmp_path / "commands"), str(Path(sys.executable).parent)]
    assert made["NO_PROXY"] == "example.org,127.0.0.1,localhost"


def test_naps_grow_with_the_time_that_was_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("accord.federation.own_supernode.time.sleep", slept.append)
    naps = Naps()
    for _ in range(40):
        naps.sleep(3)
    assert slept[0] == 0.2
    assert slept[-1] == 3, "no more often than Flower itself, in the end"
    assert all(nap <= 0.2 + 0.21 * sum(slept[:place]) for place, nap in enumerate(slept))
    naps.sleep(0.5)  # the client app is at work
    naps.sleep(3)
    assert slept[-2:] == [0.1, 0.2]


def test_a_superexec_that_died_is_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not before it has had some rest, should it die at once."""
    now = [100.0]
    monkeypatch.setattr("accord.federation.own_supernode.time.monotonic", lambda: now[0])
    keeper, mark = Keeper(), tmp_path / "starts"
    keeper.look()  # nothing was started yet
    keeper.Popen(["sh", "-c", f"echo x >> {mark}"])
    for seconds, starts in ((0.0, 1), (4.0, 1), (1.1, 2), (0.0, 2), (6.0, 3)):
        now[0] += seconds
        keeper.look()
        assert keeper.process is not None
        keeper.process.wait(10)
        assert mark.read_text().count("x") == starts
    keeper.ring()  # nobody hears it
    keeper.Popen(["cat"])
    alive = keeper.process
    now[0] += 10
    keeper.look()
    assert keeper.process is alive
    with alive:
        alive.kill()


def test_a_superexec_looks_when_it_rings() -> None:
    """At the latest after two seconds; and as often as Flower would when there is no bell any more."""
    end, other = os.pipe()
    waiting = Waiting(end)
    ring = ringing(iter([None, 7, 7]).__next__, lambda: os.write(other, b"\n") and None)
    assert ring() is None
    threading.Timer(0.3, ring).start()
    began = time.monotonic()
    waiting.sleep(0.01)
    assert 0.2 < time.monotonic() - began < SELDOM
    began = time.monotonic()
    waiting.sleep(0.01)
    assert time.monotonic() - began > SELDOM - 0.1
    os.close(other)
    for _ in range(2):
        began = time.monotonic()
        waiting.sleep(0.01)
        assert time.monotonic() - began < 1
    os.close(end)


def test_pieces_on_their_way_are_looked_for_again_soon() -> None:
    from types import ModuleType

    from flwr.supercore.inflatable import inflatable_utils
    from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError

    theirs, looks = ModuleType("theirs"), list[float]()
    theirs.pull_objects = inflatable_utils.pull_objects  # type: ignore[attr-defined]
    fetch_sooner(theirs)

    def pull(name: str) -> bytes:
        looks.append(time.monotonic())
        if len(looks) < 3:
            raise ObjectUnavailableError(name)
        return b"here"

    assert theirs.pull_objects(["a"], pull) == {"a": b"here"}
    assert looks[2] - looks[0] < 1, "Flower itself would have slept for three seconds"
    with pytest.raises(SystemExit, match=r"Accord knows flwr 1\.41"):
        fetch_sooner(ModuleType("other"))
