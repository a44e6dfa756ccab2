"""Old checkpoints go only where enough sound ones remain, and nothing else is taken for one."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.engine.checkpoint import Checkpoints, Snapshot
from accord.engine.store import ClientStore
from accord.errors import CheckpointError
from support.messages import variants

SIZES = np.ones(10, np.int64)


class Run:
    """Checkpoints with one client whose memory changes in every round."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep
        self.again()

    def again(self) -> None:
        """As a process that goes on: nothing is remembered."""
        self.checkpoints = Checkpoints(self.folder, "hash", self.keep)
        self.store = ClientStore(self.checkpoints.clients_folder, SIZES, 1 << 20)

    def save(self, *rounds: int) -> None:
        for round in rounds:
            self.store.put(0, (round, 0), {"control": {"w": torch.full((3,), float(round))}})
            state = {"model": {"w": torch.tensor([float(round)])}}
            self.checkpoints.save(Snapshot(round, state, self.store.save()), self.store, {"accord": "1"})

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("round-*"))

    def client_file(self, round: int) -> Path:
        """The memory a checkpoint names."""
        record = json.loads((self.folder / f"round-{round:06d}" / "run.json").read_text())
        return self.folder / "clients" / str(record["clients"]["0"][0])

    def newest(self) -> int:
        snapshot, _ = self.checkpoints.newest(self.store)
        assert snapshot is not None
        self.store.restore(snapshot.clients)
        assert snapshot.state["model"]["w"].item() == snapshot.round
        memory = self.store.get(0)
        assert memory is not None
        assert memory["control"]["w"].tolist() == [float(snapshot.round)] * 3
        return snapshot.round


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("victim", ["server.safetensors", "run.json"])
@pytest.mark.parametrize("restarted", [True, False])
def test_damaged_checkpoints_do_not_push_sound_ones_out(tmp_path: Path, victim: str, restarted: bool) -> None:
    run = Run(tmp_path)
    run.save(1, 2)
    shutil.copytree(tmp_path / "round-000002", tmp_path / "round-000008")
    shutil.copytree(tmp_path / "round-000002", tmp_path / "round-000009")
    for name in ("round-000008", "round-000009"):
        damage(tmp_path / name / victim)
    if restarted:
        run.again()
        assert run.newest() == 2
    run.save(3)
    assert run.names() == ["round-000002", "round-000003", "round-000008", "round-000009"]
    assert run.newest() == 3
    damage(tmp_path / "round-000003" / victim)
    run.save(4)
    assert {"round-000002", "round-000004"} <= set(run.names())
    damage(tmp_path / "round-000004" / victim)
    assert run.newest() == 2


def test_a_checkpoint_whose_client_is_gone_is_not_counted(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(1, 2, 3)
    assert run.names() == ["round-000002", "round-000003"]
    run.save(4)
    run.client_file(3).unlink()
    run.save(5)
    assert run.newest() == 5
    assert "round-000004" in run.names()
    (
        tmp_path / "clients" / json.loads((tmp_path / "round-000005" / "run.json").read_text())["clients"]["0"][0]
    ).unlink()
    run.save(6)
    assert {"round-000004", "round-000006"} <= set(run.names())


def test_another_file_of_the_same_size_and_time_is_looked_at_again(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(1, 2)
    path = tmp_path / "round-000002" / "server.safetensors"
    before, other = path.stat(), tmp_path / "other"
    shutil.copyfile(path, other)
    damage(other)
    other.replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    run.save(3)
    assert run.names() == ["round-000001", "round-000002", "round-000003"], "two sound ones are kept"


def test_what_clients_of_a_damaged_checkpoint_remember_is_kept(tmp_path: Path) -> None:
    """A copy of its state may be put back; what cannot even be read names no clients."""
    run = Run(tmp_path)
    run.save(1, 2)
    second = run.client_file(2)
    damage(tmp_path / "round-000002" / "server.safetensors")
    run.save(3)
    assert second.exists()
    damage(tmp_path / "round-000002" / "run.json")
    run.save(4)
    assert not second.exists()


def test_a_healthy_run_does_not_read_its_states_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)

    def read(path: Path) -> str:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr("accord.engine.checkpoint.sha256_here", read)
    run.save(1, 2, 3, 4)
    assert run.names() == ["round-000003", "round-000004"]


@pytest.mark.parametrize("name", ["round-backup", "round-", "round-12a", "round-000002 (copy)", "round-٣", "round--5"])
def test_other_folders_are_neither_counted_nor_touched(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path)
    run.save(1, 2)
    shutil.copytree(tmp_path / "round-000002", tmp_path / name)
    run.save(3, 4)
    assert run.names() == sorted(["round-000003", "round-000004", name])
    assert run.newest() == 4


def test_a_file_of_that_name_is_left_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, keep=1)
    run.save(2)
    (tmp_path / "round-000001").write_text("a note")
    run.save(3)
    assert run.names() == ["round-000001", "round-000003"]


def test_the_order_is_that_of_numbers(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(999_998, 999_999, 1_000_000)
    assert run.names() == ["round-1000000", "round-999999"]
    assert run.newest() == 1_000_000
    run.save(1_000_001)
    assert run.names() == ["round-1000000", "round-1000001"]


def test_a_copy_under_a_later_number_is_not_the_newest(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(1, 2)
    shutil.copytree(tmp_path / "round-000001", tmp_path / "round-000050")
    snapshot, refused = run.checkpoints.newest(run.store)
    assert snapshot is not None
    assert snapshot.round == 2
    assert "its record is that of round 1" in refused[0]


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose digest holds, as an author could write it."""
    rest = {name: value for name, value in record.items() if name != "digest"}
    return {**rest, "digest": hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def held_to_the_original(run: Run, text: bytes) -> bool:
    """Whether it is accepted, and then it is what was written."""
    path = run.folder / "round-000001" / "run.json"
    path.write_bytes(text)
    try:
        snapshot, _ = run.checkpoints.newest(run.store)
    except CheckpointError as error:
        if len(str(error)) > 2000:
            raise AssertionError("a sentence is short, whatever it speaks of") from error
        return False
    assert snapshot is not None
    assert snapshot.round == 1
    assert snapshot.state["model"]["w"].tolist() == [1.0]
    run.store.restore(snapshot.clients)
    assert run.store.clients() == [0]
    assert run.newest() == 1
    return True


def test_a_record_with_any_node_replaced_is_the_same_or_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(1)
    original = (tmp_path / "round-000001" / "run.json").read_bytes()
    count = 0
    for text in variants(json.loads(original)):
        held_to_the_original(run, text.encode())
        try:
            record = json.loads(text)
            authored = json.dumps(sealed(record)) if isinstance(record, dict) else text
        except ValueError:
            continue
        free = isinstance(record, dict) and (record.get("clients") == {} or record.get("versions") != {"accord": "1"})
        if not free:  # an author may name other versions, and no clients at all
            held_to_the_original(run, authored.encode(errors="replace"))
        count += 1
    assert count > 300
    assert held_to_the_original(run, original)


def test_damaged_records_are_the_same_or_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(1)
    original = (tmp_path / "round-000001" / "run.json").read_bytes()
    draw = random.Random(15)
    for _ in range(700):
        text = bytearray(original)
        place = draw.randrange(len(text))
        if draw.random() < 0.6:
            text[place] = draw.choice([text[place] ^ 1 << draw.randrange(8), *b'{}[]",:09e'])
        elif draw.random() < 0.5:
            del text[place : place + draw.choice([1, 3, 1000])]
        else:
            text[place:place] = text[place : place + draw.randrange(30)]
        held_to_the_original(run, bytes(text))


@pytest.mark.parametrize(
    "name",
    ["../../x.safetensors", "/etc/passwd", "0-1.0.safetensors/", "0-1.0.safetensors\n", "1-1.0.safetensors", "x", ""],
)
def test_no_client_file_lies_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path)
    run.save(1)
    path = tmp_path / "round-000001" / "run.json"
    record = json.loads(path.read_text())
    record["clients"]["0"][0] = name
    path.write_text(json.dumps(sealed(record)))
    with pytest.raises(CheckpointError, match=r"clients is .* it must be"):
        run.checkpoints.newest(run.store)


@pytest.mark.parametrize("key", ["00", "-1", "x", "", "0 ", "٣", "9" * 30])
def test_a_client_is_a_number(tmp_path: Path, key: str) -> None:
    run = Run(tmp_path)
    run.save(1)
    path = tmp_path / "round-000001" / "run.json"
    record = json.loads(path.read_text())
    record["clients"] = {key: record["clients"]["0"]}
    path.write_text(json.dumps(sealed(record)))
    with pytest.raises(CheckpointError, match=r"clients is .* it must be"):
        run.checkpoints.newest(run.store)


@pytest.mark.parametrize("name", ["run.json", "server.safetensors"])
@pytest.mark.timeout(20)
def test_a_device_in_the_place_of_a_file_is_not_read(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path)
    run.save(1)
    (tmp_path / "round-000001" / name).unlink()
    (tmp_path / "round-000001" / name).symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match=f"{name}.* is a symbolic link"):
        run.checkpoints.newest(run.store)


def test_an_older_format_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(1)
    path = tmp_path / "round-000001" / "run.json"
    path.write_text(json.dumps(sealed({"format": 1, "something": "else"})))
    with pytest.raises(CheckpointError, match="written in format 1, this version reads format"):
        run.checkpoints.newest(run.store)


def test_what_a_killed_run_was_about_to_remove_is_removed_when_it_goes_on(tmp_path: Path) -> None:
    """Killed between the last checkpoint's rename and the removal of what only older ones needed."""
    sets = ["algorithm.name=scaffold", "rounds=2", "data.limit=80", "partition.clients=4", "clients.count=2"]
    sets += ["model.name=mlp", "model.hidden=[4]", "executor=sequential", f"out={tmp_path}", "name=x"]
    clients = accord.run(accord.load_config(sets=sets)).folder / "checkpoint" / "clients"
    known = sorted(path.name for path in clients.iterdir())
    (clients / "0-1.7.safetensors").write_bytes(b"of an older round")
    accord.resume(tmp_path / "x")
    assert sorted(path.name for path in clients.iterdir()) == known


@pytest.mark.parametrize("after", [3, 4])
def test_a_run_that_goes_on_drops_what_it_was_about_to_drop(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between a checkpoint and the end of the one before the last but one; the last time after its end."""
    sets = ["data.limit=60", "partition.clients=2", "model.name=mlp", "model.hidden=[4]", "executor=sequential"]
    config = accord.load_config(sets=[*sets, "rounds=4", "checkpoint.keep=2", f"out={tmp_path}", "name=x"])

    class Notes(accord.Observer):
        def __init__(self, after: int) -> None:
            self.after, self.found = after, list[str]()

        def started(self, *given: Any) -> None:
            self.found = sorted(path.name for path in (tmp_path / "x" / "checkpoint").glob("round-*"))

        def round_ended(self, round: int, record: Any) -> None:
            if round == self.after:
                raise KeyboardInterrupt

    with monkeypatch.context() as kept:
        kept.setattr(Checkpoints, "prune", lambda *given: None)
        if after == 4:
            accord.run(config)
        else:
            with pytest.raises(KeyboardInterrupt):
                accord.run(config, observers=[Notes(after)])
    assert len(list((tmp_path / "x" / "checkpoint").glob("round-*"))) == after
    notes = Notes(99)
    accord.resume(tmp_path / "x", observers=[notes])
    assert notes.found == [f"round-{number:06d}" for number in (after - 1, after)]
