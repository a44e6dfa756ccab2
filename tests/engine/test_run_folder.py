"""A run's folder is written without following links, and what a killed write left is cleared away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import accord
from accord.config import RunConfig, load_config
from accord.engine.checkpoint import Checkpoints, Snapshot
from accord.engine.files import only_here, write_atomic
from accord.engine.folder import _filled, abandoned, begin_in, read_config
from accord.engine.logs import RunLogs
from accord.engine.store import ClientStore
from accord.errors import ConfigError, RunError
from accord.wire.files import read_here

SMALL = [
    "rounds=2", "data.limit=60", "partition.clients=2", "clients.count=2", "partition.name=iid", "model.name=mlp",
    "model.hidden=[4]", "executor=sequential", "algorithm.name=scaffold", "evaluate.clients=false",
]  # fmt: skip


def config(out: Path, *sets: str) -> RunConfig:
    return load_config(None, [*SMALL, f"out={out}", *sets])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return accord.run(config(tmp_path_factory.mktemp("runs"))).folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A run as it might be received from somebody."""
    return Path(shutil.copytree(finished, tmp_path / "received"))


@pytest.fixture
def treasure(tmp_path: Path) -> Path:
    """Files outside of the run that nobody may touch."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in ("notes.md", "0-1.0.safetensors", "mine.safetensors", "deep/server.safetensors"):
        (outside / name).write_text("precious\n" * 100)
    return outside


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replace_by_link(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    "name", [".lock", "metrics.jsonl", "timings.jsonl", "notes.txt", "config.toml", "summary.json", "mlflow-run-id"]
)
@pytest.mark.parametrize("target", ["notes.md", "not-there"])
def test_a_file_that_is_a_link_is_refused_and_its_target_stays(
    folder: Path, treasure: Path, name: str, target: str
) -> None:
    if name == "config.toml":
        shutil.copy(folder / name, treasure / target)  # what it reads must be a configuration
    before = contents(treasure)
    replace_by_link(folder / name, treasure / target)
    with pytest.raises(RunError, match=f"{name} is a symbolic link"):
        accord.resume(folder)
    assert contents(treasure) == before


@pytest.mark.parametrize(
    "name", ["checkpoint", "checkpoint/clients", "checkpoint/round-000002", "checkpoint/round-000007", "tensorboard"]
)
def test_a_folder_that_is_a_link_is_refused_and_its_target_stays(folder: Path, treasure: Path, name: str) -> None:
    before = contents(treasure)
    replace_by_link(folder / name, treasure)
    with pytest.raises(RunError, match=f"{Path(name).name} is a symbolic link"):
        accord.resume(folder)
    assert contents(treasure) == before


def test_links_that_are_the_users_own_are_none_of_our_business(folder: Path, treasure: Path) -> None:
    (folder / "data").symlink_to(treasure)
    (folder / "checkpoint" / "round-backup").symlink_to(treasure)
    link = folder.with_name("short-name")
    link.symlink_to(folder)
    before = contents(treasure)
    accord.resume(link)
    assert contents(treasure) == before


def test_logs_are_neither_cut_nor_continued_through_links(tmp_path: Path, treasure: Path) -> None:
    before = contents(treasure)
    for name in ("metrics.jsonl", "timings.jsonl"):
        for target in ("notes.md", "not-there"):
            run = tmp_path / f"{name}-{target}"
            run.mkdir()
            (run / name).symlink_to(treasure / target)
            with pytest.raises(RunError, match="is a symbolic link"):
                RunLogs(run, 0)
    logs = RunLogs(tmp_path, 0)
    (tmp_path / "notes.txt").symlink_to(treasure / "notes.md")
    with pytest.raises(RunError, match="is a symbolic link"):
        logs.note("something")
    logs.close()
    assert contents(treasure) == before


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_here(tmp_path / "x", 5) == b"12345"
    with pytest.raises(RunError, match="x has 5 bytes, more than the 4 allowed"):
        read_here(tmp_path / "x", 4)


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "notes.txt", ".lock"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(RunError, match=r"No such device|no plain file"):
        RunLogs(tmp_path, 0)
    with pytest.raises(RunError, match=r"No such device|no plain file"), only_here(tmp_path):
        pass
    with pytest.raises(RunError, match="no plain file"):
        read_here(tmp_path / "metrics.jsonl", 10)


def test_a_lock_does_not_empty_the_file_it_is_taken_on(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("something")
    with only_here(tmp_path):
        pass
    assert (tmp_path / ".lock").read_text() == "something"


def store_with_memory(folder: Path) -> ClientStore:
    store = ClientStore(folder, np.ones(4, np.int64), 1 << 20)
    store.put(0, (1, 0), {"control": {"w": torch.ones(3)}})
    return store


def test_a_linked_clients_folder_is_neither_written_nor_collected(tmp_path: Path, treasure: Path) -> None:
    before = contents(treasure)
    (tmp_path / "clients").symlink_to(treasure)
    store = store_with_memory(tmp_path / "clients")
    with pytest.raises(RunError, match="clients is a symbolic link"):
        store.save()
    with pytest.raises(RunError, match="clients is a symbolic link"):
        store.collect_garbage([])
    assert contents(treasure) == before


def test_collecting_takes_only_files_the_store_could_have_written(tmp_path: Path) -> None:
    store = store_with_memory(tmp_path)
    store.save()
    for name in (
        "mine.safetensors",
        "1-2-3-4.safetensors",
        "x-1.safetensors",
        "1-1.0.safetensors.bak",
        "3-1.0.safetensors",
    ):
        (tmp_path / name).write_text("")
    store.collect_garbage([])
    left = {path.name for path in tmp_path.iterdir()}
    assert {"mine.safetensors", "x-1.safetensors", "1-1.0.safetensors.bak"} < left
    assert "3-1.0.safetensors" not in left
    assert len(left & set(store.save()["0"])) == 1


@pytest.mark.parametrize("name", [".round-000001.tmp", "round-000001"])
def test_a_checkpoint_is_not_written_through_a_link(tmp_path: Path, treasure: Path, name: str) -> None:
    before = contents(treasure)
    checkpoints = Checkpoints(tmp_path / "checkpoint", "hash", 2)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / name).symlink_to(treasure)
    store = ClientStore(checkpoints.clients_folder, np.ones(4, np.int64), 1 << 20)
    with pytest.raises(RunError, match="is a symbolic link"):
        checkpoints.save(Snapshot(1, {"model": {"w": torch.ones(1)}}, {}), store, {})
    assert contents(treasure) == before


def test_a_temporary_file_of_the_same_name_is_replaced_never_followed(tmp_path: Path, treasure: Path) -> None:
    before = contents(treasure)
    temporary = tmp_path / f".x.json.{os.getpid()}.tmp"
    temporary.symlink_to(treasure / "notes.md")
    write_atomic(tmp_path / "x.json", "new")
    temporary.write_text("left by a process with the same number, as in a container")
    write_atomic(tmp_path / "x.json", "newer")
    assert (tmp_path / "x.json").read_text() == "newer"
    assert contents(treasure) == before
    temporary.mkdir()
    with pytest.raises(RunError, match=r"cannot write .*x\.json"):
        write_atomic(tmp_path / "x.json", "newest")


def test_an_interrupt_while_writing_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("accord.engine.files.os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "x.json", "new")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_write_left_goes_when_the_run_goes_on(folder: Path, treasure: Path) -> None:
    before = contents(treasure)
    checkpoint = folder / "checkpoint"
    ours = [
        folder / ".summary.json.4242.tmp",
        folder / ".config.toml.1.tmp",
        checkpoint / ".x.safetensors.77.tmp",
        checkpoint / "clients" / ".0-2.0.safetensors.4242.tmp",
        checkpoint / "round-000002" / ".run.json.5.tmp",
    ]
    for path in ours:
        path.write_text("half a fi")
    torn = checkpoint / ".round-000002.tmp"
    (torn / "deep").mkdir(parents=True)
    (torn / "deep" / "away").symlink_to(treasure)
    theirs = [folder / "draft.5.tmp", folder / ".vimrc.tmp", folder / ".x.5b.tmp", checkpoint / ".round-x.tmp"]
    for path in theirs:
        path.write_text("the user's")
    theirs += [folder / ".round-000001.tmp", folder / ".folder.5.tmp"]
    for path in theirs[-2:]:
        path.mkdir()
    (folder / ".link.5.tmp").symlink_to(treasure / "notes.md")
    theirs.append(folder / ".link.5.tmp")
    with only_here(folder):
        assert not any(path.exists() for path in [*ours, torn])
    assert all(path.exists() for path in theirs)
    assert contents(treasure) == before


def test_nothing_is_cleared_away_while_another_process_works_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = tmp_path / ".summary.json.4242.tmp"
    leftover.write_text("being written")

    def taken(*_: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr("fcntl.lockf", taken)
    with pytest.raises(RunError, match="another process works in"), only_here(tmp_path):
        pass
    assert leftover.exists()


def test_a_run_begins_in_a_folder_of_its_own_with_the_files_it_is_given(tmp_path: Path) -> None:
    config = load_config(sets=["rounds=7"])
    place = tmp_path / "deep" / "run"
    begin_in(place, config, {"data": {}}, {"federation.json": "{}"})
    assert read_config(place).rounds == 7
    assert (place / "federation.json").read_text() == "{}"
    with pytest.raises(ConfigError, match="holds something else than a run"):
        begin_in(place, config, {"data": {}}, {})
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds something else than a run"):
        begin_in(other, config, {"data": {}}, {})
    assert [path.name for path in other.iterdir()] == ["notes.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the run's folder"):
        begin_in(tmp_path / "file" / "run", config, {"data": {}}, {})
    assert not abandoned(tmp_path / "nowhere")


def test_whoever_comes_second_finds_a_run_and_changes_nothing(tmp_path: Path) -> None:
    first, second = load_config(sets=["rounds=3"]), load_config(sets=["rounds=4"])
    assert _filled(tmp_path, first, {"data": 1}, {"note.txt": "a"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() >= {"config.toml", "identity.json", "note.txt"}
    assert not _filled(tmp_path, second, {"data": 2}, {"note.txt": "b"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_configuration_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it a folder holds a run, so that all else must be there."""
    written: list[str] = []

    def write(path: Path, data: str) -> None:
        written.append(path.name)
        write_atomic(path, data)

    for module in ("folder", "identity"):
        monkeypatch.setattr(f"accord.engine.{module}.write_atomic", write)
    assert _filled(tmp_path, load_config(), {"data": 1}, {"note.txt": "a"})
    assert written == ["identity.json", "note.txt", "config.toml"]


def test_no_log_is_cut_where_another_one_is_a_link(tmp_path: Path, treasure: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n')
    (tmp_path / "timings.jsonl").symlink_to(treasure)
    with pytest.raises(RunError, match=r"timings\.jsonl is a symbolic link"):
        RunLogs(tmp_path, 0)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"round": 1}\n'


def test_both_logs_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = RunLogs(tmp_path, 0)
    reached: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: reached.append(Path(f"/proc/self/fd/{handle}").resolve().name))
    logs.write("metrics", {"round": 1})
    assert reached == []
    logs.sync()
    logs.close()
    assert reached == ["metrics.jsonl", "timings.jsonl"]
