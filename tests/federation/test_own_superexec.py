"""A node works messages off with its own app, in a process that stays, and starts nothing else that Flower knows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec as running
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResultStatus
from flwr.supercore.task_identity import TaskIdentity

from accord.federation import own_superexec, worker
from accord.federation.processes import waited
from accord.federation.worker import Errand
from accord.federation.workshop import Workshop

SPEC = ExecutionSpec(TaskType.CLIENT_APP, "127.0.0.1:1", "word", True, None, False, None, False, 1)
Work = Callable[[Errand], bool]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Work], Workshop]]:
    """A workshop whose workers do this instead of asking a SuperNode; none is left."""
    shops: list[Workshop] = []

    def make(work: Work) -> Workshop:
        monkeypatch.setattr(worker, "work_off", lambda errand, app: work(errand))
        shops.append(Workshop(ClientApp()))
        return shops[-1]

    yield make
    for shop in shops:
        shop.close()
        assert waited(lambda shop=shop: ended(shop), 20)  # type: ignore[misc]


def ended(shop: Workshop) -> bool:
    shop.reconcile()
    return not shop.workers


def idle(shop: Workshop) -> bool:
    shop.reconcile()
    return all(one.errand is None for one in shop.workers)


def given(shop: Workshop, *tokens: str) -> None:
    """One message after the other, each when the one before is done."""
    for token in tokens:
        assert shop.launch(replace(SPEC, token=token)).status == LaunchResultStatus.ACCEPTED
        assert waited(lambda: idle(shop), 20)


def writing(folder: Path, well: bool = True) -> Work:
    """Leave a line: who worked off what."""

    def work(errand: Errand) -> bool:
        with (folder / "done").open("a") as file:
            file.write(f"{os.getpid()} {errand.token}\n")
        return well

    return work


def done(folder: Path) -> list[tuple[int, str]]:
    file = folder / "done"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines]


def test_one_process_works_all_messages_off(made: Callable[[Work], Workshop], tmp_path: Path) -> None:
    shop = made(writing(tmp_path))
    given(shop, "a", "b", "c")
    assert [token for _, token in done(tmp_path)] == ["a", "b", "c"]
    pids = {pid for pid, _ in done(tmp_path)}
    assert len(pids) == 1
    assert os.getpid() not in pids


def test_other_kinds_of_work_are_refused(made: Callable[[Work], Workshop], tmp_path: Path) -> None:
    shop = made(writing(tmp_path))
    for kind in set(TaskType) - {TaskType.CLIENT_APP}:
        result = shop.launch(replace(SPEC, task_type=kind))
        assert result.status == LaunchResultStatus.FAILED
        assert f"{kind} is refused" in str(result.message)
    assert shop.workers == []


def test_a_worker_leaves_after_a_failure(made: Callable[[Work], Workshop], tmp_path: Path) -> None:
    shop = made(writing(tmp_path, well=False))
    given(shop, "a", "b")
    assert len({pid for pid, _ in done(tmp_path)}) == 2


def test_a_worker_leaves_after_so_many_messages(
    made: Callable[[Work], Workshop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MESSAGES", 2)
    shop = made(writing(tmp_path))
    given(shop, "a", "b", "c", "d", "e")
    pids = [pid for pid, _ in done(tmp_path)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


def test_a_worker_that_holds_much_memory_leaves(
    made: Callable[[Work], Workshop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Far more than a fork of a large process comes to by touching what it shares with it.
    monkeypatch.setattr(worker, "ROOM", 200 << 20)
    kept = []

    def work(errand: Errand) -> bool:
        if errand.token == "much":
            kept.append(b"x" * (400 << 20))
        return writing(tmp_path)(errand)

    shop = made(work)
    given(shop, "a", "b", "much", "c", "d")
    pids = [pid for pid, _ in done(tmp_path)]
    assert pids[0] == pids[1] == pids[2] != pids[3] == pids[4]


def test_what_a_killed_worker_had_in_hand_is_given_to_the_next(
    made: Callable[[Work], Workshop], tmp_path: Path
) -> None:
    """One that kills again is not tried a third time: Flower says so to the server."""

    def work(errand: Errand) -> bool:
        writing(tmp_path)(errand)
        if (errand.token, errand.attempts) == ("once", 1) or errand.token == "always":
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    shop = made(work)
    given(shop, "a", "once", "always", "b")
    assert [token for _, token in done(tmp_path)] == ["a", "once", "once", "always", "always", "b"]
    assert len({pid for pid, _ in done(tmp_path)}) == 4


def test_a_message_does_not_wait_for_one_that_takes_long(made: Callable[[Work], Workshop], tmp_path: Path) -> None:
    """And the one who is late ends when he is done, as another stays."""
    go = tmp_path / "go"

    def work(errand: Errand) -> bool:
        if errand.token == "long":
            assert waited(go.exists, 20)
        return writing(tmp_path)(errand)

    shop = made(work)
    shop.launch(replace(SPEC, token="long"))
    shop.launch(replace(SPEC, token="b"))
    assert waited(lambda: [token for _, token in done(tmp_path)] == ["b"], 20)
    go.touch()
    assert waited(lambda: idle(shop) and len(shop.workers) == 1, 20)
    given(shop, "c")
    (second, _), (first, _), (third, _) = done(tmp_path)
    assert first != second == third


ALONE = """
import os, sys, time
from pathlib import Path
from flwr.clientapp import ClientApp
from accord.federation import worker
from accord.federation.workshop import Workshop
from federation.test_own_superexec import SPEC

def work(errand, app):
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(600 if sys.argv[2] == "busy" else 0)
    return True

worker.work_off = work
Workshop(ClientApp()).launch(SPEC)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["busy", "idle"])
def test_a_worker_ends_with_the_superexec(how: str, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    words = [sys.executable, "-c", ALONE, str(file), how]
    paths = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), *sys.path)))
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": paths}) as parent:
        assert waited(lambda: file.exists() and file.read_text() != "", 60)
        pid = int(file.read_text())
        assert alive(pid)
        parent.kill()
    assert waited(lambda: not alive(pid), 10)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Wire:
    """A SuperNode with one message, and what was said to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, message: Message | Exception) -> None:
        self.said: list[Any] = []

        def pulled(client: Any) -> Any:
            if isinstance(message, Exception):
                raise message
            return message, "context", None, None

        monkeypatch.setattr(worker, "pull_task_input", pulled)
        monkeypatch.setattr(worker, "push_message", lambda client, reply, context: self.said.append(reply))
        monkeypatch.setattr(worker, "push_task_output", lambda client, context, status, why: self.said.append(status))
        monkeypatch.setattr(worker.HeartbeatSender, "start", lambda self: None)


ERRAND = Errand("127.0.0.1:1", "word", True, None)


def asked() -> Message:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    return Message(RecordDict({"c": ConfigRecord({"x": 1})}), 1, "train.task")


def test_an_answer_is_told_to_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(monkeypatch, asked())
    app: Any = lambda message, context: "answer"  # noqa: E731
    assert worker.work_off(ERRAND, app)
    assert wire.said == ["answer", "completed"]


def test_a_failure_of_the_app_is_an_error_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    message = asked()
    message.metadata.__dict__["_message_id"] = "1"
    wire = Wire(monkeypatch, message)

    def app(message: Message, context: Any) -> Message:
        raise ValueError("no such thing")

    assert not worker.work_off(ERRAND, app)  # type: ignore[arg-type]
    reply, status = wire.said
    assert "ValueError: no such thing" in reply.error.reason
    assert status == "failed"


def test_a_node_that_gives_no_message_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not tell the server of a task that has failed; it does of one whose heartbeat stops."""
    wire = Wire(monkeypatch, RuntimeError("No messages received"))
    assert not worker.work_off(ERRAND, ClientApp())
    assert wire.said == []


def test_a_version_that_starts_programs_in_another_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(running, "get_executor")
    with pytest.raises(SystemExit, match=r"Accord knows flwr 1\.41"):
        own_superexec.main()


def test_flower_asks_our_workshop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is Flower's own; its executor is ours whatever is asked for."""
    from flwr.supercore.inflatable import inflatable_utils

    monkeypatch.setattr(running, "get_executor", running.get_executor)  # put back afterwards
    monkeypatch.setattr(running, "time", running.time)
    monkeypatch.setattr(inflatable_utils, "pull_objects", inflatable_utils.pull_objects)
    monkeypatch.setattr("flwr.supercore.cli.flower_superexec", lambda: None)
    with open(os.devnull) as bell:
        monkeypatch.setattr("sys.stdin", bell)
        own_superexec.main()
    assert isinstance(running.get_executor("subprocess"), Workshop)
