"""Client memory on disk, checkpoints that are whole or refused, logs cut back to the checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from accord.engine import files
from accord.engine.checkpoint import Checkpoints, Snapshot
from accord.engine.logs import RunLogs
from accord.engine.store import MANIFEST, ClientStore
from accord.errors import CheckpointError, DataError, RunError
from accord.wire.codec import decode, encode, place, room, views

SIZES = np.ones(10, np.int64)


def memory(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"control": {"w": torch.full((100,), float(value))}}


def test_memory_merges_by_tree_and_survives_leaving_the_ram(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, SIZES, limit_bytes=900)  # two clients of 400 bytes
    for client in range(5):
        store.put(client, (0 + 1, 0), memory(client))
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    store.put(0, (1 + 1, 0), {"other": {"x": torch.ones(1)}})
    first = store.get(0)
    assert first is not None
    assert first["control"]["w"][0] == 0
    assert first["other"]["x"] == 1
    assert store.get(9) is None
    assert store.clients() == [0, 1, 2, 3, 4]


def test_clients_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, SIZES, 1 << 20)
    for client in (7, 2, 5):
        store.put(client, (1, 0), memory(client))
    assert store.clients() == [2, 5, 7]
    assert list(store.save()) == ["2", "5", "7"]


def test_those_used_least_of_late_leave_the_ram_first(tmp_path: Path) -> None:
    """400 bytes each and room for 800: exactly two stay; whoever is larger than the room stays alone."""
    store = ClientStore(tmp_path, SIZES, limit_bytes=800)
    store.put(0, (1, 0), memory(0))
    store.put(1, (1, 1), memory(1))
    assert not list(tmp_path.iterdir()), "both fit"
    store.get(0)
    store.put(2, (2, 0), memory(2))
    assert [path.name for path in tmp_path.iterdir()] == ["1-1.1.safetensors"], "0 was used after 1"
    store.put(2, (3, 0), memory(3))
    assert len(list(tmp_path.iterdir())) == 1, "what takes the place of something takes no more"
    store.put(4, (3, 1), {"control": {"w": torch.zeros(1000)}})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0-1.0.safetensors",
        "1-1.1.safetensors",
        "2-3.0.safetensors",
    ]
    found = [store.get(client) for client in (0, 1, 2)]
    assert [float(one["control"]["w"][0]) for one in found if one is not None] == [0.0, 1.0, 3.0]


def test_a_checkpoint_holds_nothing_of_one_that_was_not_finished(tmp_path: Path) -> None:
    store = ClientStore(tmp_path / "clients", SIZES, 1 << 20)
    checkpoints = Checkpoints(tmp_path, "hash", keep=2)
    for left in (".round-000003.tmp", "round-000003"):  # of a process that was killed, and one that is written anew
        (tmp_path / left).mkdir()
        (tmp_path / left / "junk").write_text("of another time")
    store.put(5, (3, 0), memory(5))
    manifest = store.save()
    checkpoints.save(Snapshot(3, memory(1), manifest, "a" * 64), store, {"torch": "2.6.0"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clients", "round-000003"]
    assert sorted(path.name for path in (tmp_path / "round-000003").iterdir()) == ["run.json", "server.safetensors"]
    found, refused = checkpoints.newest(store)
    assert found is not None
    assert (found.round, refused) == (3, [])
    assert (found.clients, found.metrics, found.versions) == (manifest, "a" * 64, {"torch": "2.6.0"})
    assert found.state["control"]["w"].tolist() == [1.0] * 100


def test_a_manifest_names_for_every_client_a_file_of_its_own() -> None:
    good = {"0": ["0-3.1.safetensors", "a" * 64], "12": ["12-1.0.safetensors", "0" * 64]}
    assert MANIFEST.fits(good)
    assert MANIFEST.fits({})
    for entry in (
        ["1-3.1.safetensors", "a" * 64],  # another client's
        ["12-3.1.safetensors", "a" * 63],
        ["12-3.1.safetensors", None],
        ["12-3.1.safetensors"],
        ["12-3.1.safetensors", "a" * 64, ""],
        ["../12-3.1.safetensors", "a" * 64],
        ["12-3.safetensors", "a" * 64],
        [12, "a" * 64],
        ("12-3.1.safetensors", "a" * 64),
        "12-3.1.safetensors",
    ):
        assert not MANIFEST.fits({**good, "12": entry})
        assert not MANIFEST.fits({"12": entry, "0": good["0"]})
    assert not MANIFEST.fits({"012": ["012-1.0.safetensors", "0" * 64]})
    assert not MANIFEST.fits([good])


def test_what_is_taken_over_from_a_checkpoint_keeps_its_version(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, SIZES, 1 << 20)
    store.put(5, (1, 0), memory(5))
    store.restore({"3": ["3-7.2.safetensors", "a" * 64], "4": ["4-12.0.safetensors", "b" * 64]})
    assert store._version == {3: (7, 2), 4: (12, 0)}
    assert store.save() == {"3": ["3-7.2.safetensors", "a" * 64], "4": ["4-12.0.safetensors", "b" * 64]}
    assert (len(store), store.clients(), store.get(5)) == (2, [3, 4], None)
    store.forget()
    assert (len(store), store.save()) == (0, {})


def test_only_what_changed_is_written_again(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, SIZES, 1 << 20)
    store.put(3, (1, 0), memory(3))
    before = store.save()
    store.put(4, (2, 0), memory(4))
    (tmp_path / "3-1.0.safetensors").unlink()
    after = store.save()
    assert [path.name for path in tmp_path.iterdir()] == ["4-2.0.safetensors"]
    assert not store.has(before)
    assert store.has({"4": after["4"]})
    other = ClientStore(tmp_path, SIZES, 1 << 20)
    other.restore({"4": after["4"]})
    other.put(4, (2, 1), memory(5))
    assert other.save()["4"][0] == "4-2.1.safetensors"
    other.collect_garbage([])
    assert [path.name for path in tmp_path.iterdir()] == ["4-2.1.safetensors"]


def test_what_was_held_before_takes_no_room_after_a_checkpoint_was_taken_over(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, SIZES, limit_bytes=800)
    store.put(0, (1, 0), memory(0))
    store.put(1, (1, 0), memory(1))
    store.restore({})
    store.put(2, (2, 0), memory(2))
    store.put(3, (2, 0), memory(3))
    assert not list(tmp_path.iterdir()), "both fit"


def test_memory_that_was_changed_on_the_disk_is_not_taken(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, SIZES, 1 << 20)
    store.put(3, (1, 0), memory(3))
    manifest = store.save()
    (tmp_path / "3-1.0.safetensors").write_bytes(encode(memory(4)))
    store.restore(manifest)
    with pytest.raises(CheckpointError, match="is damaged: its checksum differs"):
        store.get(3)


def test_an_empty_memory_is_kept_of_a_client_that_had_one(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, SIZES, 1 << 20)
    store.put(3, (1, 0), memory(3))
    store.put(3, (2, 0), {})
    assert store.save()["3"][0] == "3-2.0.safetensors"
    found = store.get(3)
    assert found is not None
    assert found["control"]["w"][0] == 3


def test_a_method_without_memory_leaves_no_trace(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, SIZES, 1 << 20)
    store.put(3, (0 + 1, 0), {})
    assert len(store) == 0
    assert store.save() == {}


def saved(tmp_path: Path, rounds: int, keep: int = 2) -> tuple[Checkpoints, ClientStore]:
    checkpoints = Checkpoints(tmp_path, "hash", keep)
    store = ClientStore(checkpoints.clients_folder, SIZES, 1 << 20)
    for round in range(1, rounds + 1):
        store.put(round % 3, (round - 1 + 1, 0), memory(round))
        state = {"model": {"w": torch.tensor([float(round)])}, "buffers": {}}
        checkpoints.save(Snapshot(round, state, store.save()), store, {})
    return checkpoints, store


def test_keeps_the_last_and_only_the_client_files_they_need(tmp_path: Path) -> None:
    checkpoints, store = saved(tmp_path, 5)
    assert sorted(p.name for p in tmp_path.glob("round-*")) == ["round-000004", "round-000005"]
    # round 5 needs clients 0@3, 1@4, 2@5; round 4 needs 0@3, 1@4, 2@2
    assert {p.name for p in checkpoints.clients_folder.iterdir()} == {
        f"{name}.0.safetensors" for name in ("0-3", "1-4", "2-5", "2-2")
    }
    snapshot, refused = checkpoints.newest(store)
    assert snapshot is not None
    assert (snapshot.round, refused) == (5, [])
    assert snapshot.state["buffers"] == {}


@pytest.mark.parametrize(
    ("victim", "reason"),
    [
        ("round-000003/server.safetensors", "checksum"),
        ("round-000003/run.json", "run.json"),
        ("clients/0-3.0.safetensors", "damaged"),
    ],
)
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "empty"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(
    tmp_path: Path, victim: str, reason: str, damage: str
) -> None:
    checkpoints, store = saved(tmp_path, 3)
    path = tmp_path / victim
    data = path.read_bytes()
    if damage == "flip":
        path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    snapshot, refused = checkpoints.newest(store)
    assert snapshot is not None
    assert snapshot.round == 2
    assert reason in refused[0] or "cannot be read" in refused[0]


@pytest.mark.parametrize(("old", "new"), [('"2.6.0"', '"2.7.0"'), ('"round": 2', '"round": 3')])
def test_a_record_that_still_reads_but_was_changed_is_refused(tmp_path: Path, old: str, new: str) -> None:
    """One byte of run.json; it stays JSON, with all its fields, and nothing else notices a version."""
    checkpoints, store = saved(tmp_path, 1)
    state = {"model": {"w": torch.zeros(1)}, "buffers": {}}
    checkpoints.save(Snapshot(2, state, store.save()), store, {"torch": "2.6.0"})
    path = tmp_path / "round-000002" / "run.json"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    assert json.loads(path.read_text()).keys() == json.loads(text).keys()
    snapshot, refused = checkpoints.newest(store)
    assert snapshot is not None
    assert snapshot.round == 1
    assert refused == ["round-000002: run.json is damaged: its digest differs"]


@pytest.mark.parametrize(
    ("victim", "other"),
    [
        ("round-000003/server.safetensors", "round-000002/server.safetensors"),
        ("clients/0-3.0.safetensors", "clients/2-2.0.safetensors"),
    ],
)
def test_a_sound_file_in_the_place_of_another_is_refused(tmp_path: Path, victim: str, other: str) -> None:
    checkpoints, store = saved(tmp_path, 3)
    decode((tmp_path / other).read_bytes())
    shutil.copyfile(tmp_path / other, tmp_path / victim)
    snapshot, refused = checkpoints.newest(store)
    assert snapshot is not None
    assert snapshot.round == 2
    assert "damaged: its checksum differs" in refused[0]


def test_a_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    _, store = saved(tmp_path, 1)
    with pytest.raises(CheckpointError, match="another configuration"):
        Checkpoints(tmp_path, "other", 2).newest(store)


def test_an_unfinished_folder_is_ignored(tmp_path: Path) -> None:
    checkpoints, store = saved(tmp_path, 2)
    shutil.copytree(tmp_path / "round-000002", tmp_path / ".round-000003.tmp")
    snapshot, _ = checkpoints.newest(store)
    assert snapshot is not None
    assert snapshot.round == 2


def test_a_full_disk_is_said_and_the_last_checkpoint_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, store = saved(tmp_path, 2)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        checkpoints.save(Snapshot(3, {"model": {"w": torch.zeros(1)}}, {}), store, {})
    monkeypatch.undo()
    snapshot, _ = checkpoints.newest(store)
    assert snapshot is not None
    assert snapshot.round == 2
    assert not list(tmp_path.glob(".*"))


def test_logs_are_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    lines = [json.dumps({"round": r}) for r in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n" + '{"round": 4, "acc')
    logs = RunLogs(tmp_path, 2)
    logs.write("metrics", {"round": 3, "again": True})
    assert logs.read("metrics") == [{"round": 1}, {"round": 2}, {"round": 3, "again": True}]
    logs.close()


def test_bytes_keep_everything(tmp_path: Path) -> None:
    trees = {
        "a": {"f": torch.randn(3, 2), "i": torch.tensor(5), "b": torch.tensor([True, False])},
        "empty": {},
        "h": {"x": torch.zeros(0, 4), "half": torch.ones(3, dtype=torch.bfloat16)},
    }
    back = decode(encode(trees))
    buffer = torch.zeros(room(trees), dtype=torch.uint8)
    seen = views(place(trees, buffer), buffer)
    for copy in (back, seen):
        assert copy.keys() == trees.keys()
        for name, tree in trees.items():
            assert copy[name].keys() == tree.keys()
            assert all(torch.equal(copy[name][n], t) and copy[name][n].dtype == t.dtype for n, t in tree.items())


def test_foreign_bytes_are_refused() -> None:
    for junk in (b"", b"\x80\x04pickle", b"\xff" * 64, encode({"a": {"w": torch.ones(3)}})[:-4]):
        with pytest.raises(DataError, match="safetensors"):
            decode(junk)


def test_garbage_that_somebody_else_took_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ClientStore(tmp_path, SIZES, 1 << 20)
    there = tmp_path / "1-2.0.safetensors"
    there.write_bytes(b"of a version that nobody needs")
    monkeypatch.setattr(store, "_present", lambda: {there.name, "1-1.0.safetensors"})  # the second went meanwhile
    store.collect_garbage([])
    assert list(tmp_path.iterdir()) == []
