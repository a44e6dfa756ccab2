"""metrics.jsonl is complete up to the checkpoint, or the run says what is missing; no good line is ever deleted."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.config import RunConfig, load_config
from accord.engine.logs import RunLogs
from accord.errors import CheckpointError, DataError, RunError
from accord.report import read_metrics, read_summary
from accord.wire.writing import as_text, finite_only

SMALL = [
    "rounds=6", "data.limit=60", "partition.clients=2", "clients.count=2", "partition.name=iid", "model.name=mlp",
    "model.hidden=[4]", "executor=sequential", "evaluate.clients=false",
]  # fmt: skip


class Stop(accord.Observer):
    """Ctrl-C after a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def round_ended(self, round: int, record: Any) -> None:
        if round == self.after:
            raise KeyboardInterrupt


def config(out: Path, *sets: str) -> RunConfig:
    return load_config(None, [*SMALL, f"out={out}", "name=x", *sets])


def stopped_after(out: Path, round: int, *sets: str) -> Path:
    with pytest.raises(KeyboardInterrupt):
        accord.run(config(out, *sets), observers=[Stop(round)])
    return out / "x"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return accord.run(config(tmp_path_factory.mktemp("whole"))).folder


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped_after(tmp_path_factory.mktemp("halfway"), 4)


@pytest.fixture
def stopped(halfway: Path, tmp_path: Path) -> Path:
    """A run of six rounds that was stopped after four, in a folder of its own."""
    return Path(shutil.copytree(halfway, tmp_path / "x"))


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)


def test_a_stopped_run_goes_on_to_the_same_lines(stopped: Path, whole: Path) -> None:
    assert len(lines_of(stopped)) == 4
    accord.resume(stopped)
    assert lines_of(stopped) == lines_of(whole)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda a: [a[0], b'{"round": 2, "acc\n', *a[2:]], r"line 2 is damaged .*no line of round 2\."),
        (lambda a: [b"\x00" * 40 + b"\n", *a[1:]], r"line 1 is damaged .*no line of round 1\."),
        (lambda a: [a[0], a[1].replace(b'"round": 2', b'"round": NaN'), *a[2:]], "line 2 .*NaN is no number"),
        (lambda a: [a[0], b"[2]\n", *a[2:]], "line 2 is damaged"),
        (lambda a: [a[0], b'{"no": 2}\n', *a[2:]], "line 2 is damaged .it names no round"),
        (lambda a: [a[0], b"\n", *a[1:]], "line 2 is damaged"),
        (lambda a: [a[0], *a[2:]], r"no line of round 2\."),
        (lambda a: a[1:], r"no line of round 1\."),
        (lambda a: a[:2], r"no line of rounds 3 to 4\."),
        (lambda a: [*a[:3], a[3][:-9]], r"line 4 is damaged \(it is cut short\); there is no line of round 4\."),
        (lambda a: [*a[:3], a[3][:-1]], r"line 4 is damaged \(it is cut short\)"),
        (lambda a: [a[0], a[0], *a[1:]], "round 1 stands there 2 times"),
        (lambda a: [a[1], a[0], *a[2:]], "rounds are not in order"),
        (lambda a: [a[0], a[1].replace(b'"bytes_up": ', b'"bytes_up": 1'), *a[2:]], "a value in lines 1 to 4 was"),
        (lambda a: [], r"no line of rounds 1 to 4\."),
        (None, "there is no such file"),
    ],
)
def test_damage_before_the_checkpoint_is_said_and_nothing_is_changed(
    stopped: Path, damage: Callable[[list[bytes]], list[bytes]] | None, words: str
) -> None:
    path = stopped / "metrics.jsonl"
    sound = path.read_bytes()
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(b"".join(damage(lines_of(stopped))))
    before = {p.name: p.read_bytes() for p in stopped.iterdir() if p.is_file()}
    with pytest.raises(CheckpointError, match=words) as refusal:
        accord.resume(stopped)
    assert "put back a sound copy" in str(refusal.value)
    assert {p.name: p.read_bytes() for p in stopped.iterdir() if p.is_file()} == before
    path.write_bytes(sound)
    assert len(accord.resume(stopped).metrics) == 6


def test_lines_behind_the_checkpoint_are_redone_whatever_they_hold(tmp_path: Path, whole: Path) -> None:
    folder = stopped_after(tmp_path, 5, "checkpoint.every=3")
    assert len(lines_of(folder)) == 5
    for tail in (b"", b'{"round": 6, "acc', b'\xff\xfe\n{"round": 6}\n', b'{"round": 1}\n' + b"[" * 5000):
        again = Path(shutil.copytree(folder, tmp_path / "again"))
        with (again / "metrics.jsonl").open("ab") as file:
            file.write(tail)
        accord.resume(again)
        assert lines_of(again) == lines_of(whole)
        shutil.rmtree(again)


def test_lines_are_on_the_disk_before_the_checkpoint_that_counts_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    real = os.fsync

    def sync(handle: int) -> None:
        happened.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        real(handle)

    monkeypatch.setattr(os, "fsync", sync)
    accord.run(config(tmp_path, "rounds=4", "checkpoint.every=2"))
    logged = [place for place, name in enumerate(happened) if name == "metrics.jsonl"]
    servers = [place for place, name in enumerate(happened) if name.startswith(".server.safetensors")]
    assert len(servers) == 2
    assert len(logged) == 3, "once for each checkpoint, and once at the end"
    assert logged[0] < servers[0] < logged[1] < servers[1] < logged[2]
    happened.clear()
    accord.run(config(tmp_path, "rounds=4", "checkpoint.every=0", "name=y"))
    assert happened.count("metrics.jsonl") == 5


def test_damaged_seconds_are_dropped_with_a_note(stopped: Path, whole: Path) -> None:
    path = stopped / "timings.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    odd = [
        b"\xff\n",
        b'{"round": 2, "train": "long"}\n',
        b'{"round": 2, "train": NaN}\n',
        b'{"round": 9, "train": 1}\n',
    ]
    path.write_bytes(b"".join([rows[0], *odd, rows[2], rows[3], b'{"round": 5, "tr']))
    outcome = accord.resume(stopped)
    assert lines_of(stopped) == lines_of(whole)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["round"] for row in kept] == [1, 3, 4, 5, 6]
    assert outcome.summary["seconds"] == pytest.approx(
        sum(v for row in kept for k, v in row.items() if k != "round"), abs=1e-3
    )
    notes = (stopped / "notes.txt").read_text().splitlines()
    assert [note.split(" is damaged")[0] for note in notes] == [f"timings.jsonl: line {n}" for n in (2, 3, 4)]


def test_the_first_file_is_closed_when_the_second_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "timings.jsonl").mkdir()
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(RunError, match=r"timings|cannot write"):
            RunLogs(tmp_path, 0)
    assert len(set(os.listdir("/proc/self/fd")) - before) == 0


class Full:
    """A file on a disk without room."""

    def __init__(self, file: Any) -> None:
        self.fileno = file.fileno

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_under_a_log_is_one_sentence(stopped: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RunLogs.write

    def tight(self: RunLogs, name: str, record: Any) -> Any:
        self._files[name] = Full(self._files[name])  # type: ignore[assignment]
        return real(self, name, record)

    close = ExitStack.close

    def broken(self: ExitStack) -> None:
        close(self)
        raise OSError(errno.EIO, "a second error, which must not hide the first")

    monkeypatch.setattr(RunLogs, "write", tight)
    monkeypatch.setattr("accord.engine.logs.ExitStack.close", broken)
    with pytest.raises(RunError, match=r"metrics\.jsonl: No space left on device.*accord resume"):
        accord.resume(stopped)
    monkeypatch.undo()
    accord.resume(stopped)
    assert lines_of(stopped) == lines_of(whole)


def test_a_note_that_cannot_be_written(tmp_path: Path) -> None:
    logs = RunLogs(tmp_path, 0)
    (tmp_path / "notes.txt").mkdir()
    with pytest.raises(RunError, match=r"cannot write .*notes\.txt"):
        logs.note("something")
    logs.close()


@pytest.mark.parametrize("gone", ["removed", "moved", "replaced"])
def test_a_folder_that_goes_away_is_noticed_at_the_next_write(tmp_path: Path, gone: str) -> None:
    class Vandal(accord.Observer):
        def round_ended(self, round: int, record: Any) -> None:
            assert round < 3, "it must be noticed"
            if round == 2:
                if gone == "removed":
                    shutil.rmtree(tmp_path / "x")
                else:
                    (tmp_path / "x").rename(tmp_path / "elsewhere")
                if gone == "replaced":
                    shutil.copytree(tmp_path / "elsewhere", tmp_path / "x")

    with pytest.raises(RunError, match=r"metrics\.jsonl was removed or moved while the run was at work"):
        accord.run(config(tmp_path), observers=[Vandal()])
    if gone == "removed":
        assert not (tmp_path / "x").exists()


def test_what_is_no_number_is_null_and_named() -> None:
    nan, inf = math.nan, math.inf
    record = {"a": nan, "b": {"c": [1.5, -inf, {"d": inf}], "e": "x\udc80"}, "f": None, "g": True}
    cleaned = {"a": None, "b": {"c": [1.5, None, {"d": None}], "e": "x\\udc80"}, "f": None, "g": True}
    assert finite_only(record) == {**cleaned, "not_finite": ["a", "b.c.1", "b.c.2.d"]}
    assert json.loads(as_text(record))["not_finite"] == ["a", "b.c.1", "b.c.2.d"]
    assert finite_only({"a": 1.0}) == {"a": 1.0}


def test_reports_read_strictly(tmp_path: Path, whole: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"round": 1}\n{"round": 2}\n{"round": 3, "a')
    assert read_metrics(tmp_path) == [{"round": 1}, {"round": 2}]
    for bad in (b'{"round": 2, "a', b'{"round": NaN}', b"[2]", b"", b"\xff", b"[" * 100_000, b"9" * 5000):
        path.write_bytes(b'{"round": 1}\n' + bad + b'\n{"round": 3}\n')
        with pytest.raises(DataError, match=r"metrics\.jsonl: line 2 is damaged"):
            read_metrics(tmp_path)
    summary = (whole / "summary.json").read_text()
    assert '"accuracy": 0.' in summary
    for bad_summary in (summary.replace('"accuracy": 0.', '"accuracy": 0.1'), '{"accuracy": NaN}', "[" * 100_000):
        (tmp_path / "summary.json").write_text(bad_summary)
        with pytest.raises(DataError, match=r"accord resume .* writes it again"):
            read_summary(tmp_path)
