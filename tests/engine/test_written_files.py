"""What is said to be on the disk is on the disk: whole, before it gets its name."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.engine import files
from accord.engine.checkpoint import Checkpoints, Snapshot
from accord.engine.files import rounds_in, write_atomic
from accord.engine.store import ClientStore
from accord.errors import RunError
from accord.wire.files import read_here, sha256_here


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Number and size, as the system sees them, of everything that is sent to the disk."""
    seen: list[tuple[int, int]] = []
    real = os.fsync

    def note(handle: int) -> None:
        found = os.fstat(handle)
        seen.append((found.st_ino, found.st_size))
        real(handle)

    monkeypatch.setattr(files.os, "fsync", note)
    return seen


def test_a_file_is_whole_on_the_disk_before_it_replaces_another(
    tmp_path: Path, synced: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "deep" / "summary.json"
    write_atomic(target, "first")
    assert target.read_text() == "first"
    real, before = Path.replace, []

    def replaced(self: Path, other: Path) -> Path:
        before.append((list(synced), target.read_text()))
        return real(self, other)

    monkeypatch.setattr(Path, "replace", replaced)
    write_atomic(target, b"second, longer")
    ((seen, old),) = before
    assert old == "first"
    assert [size for _, size in seen] == [5, 14], "synced after all of it was written"
    assert target.read_bytes() == b"second, longer"
    assert [path.name for path in target.parent.iterdir()] == ["summary.json"]


def test_a_checkpoint_is_synced_file_by_file_then_folder_by_folder(tmp_path: Path, synced: list[Any]) -> None:
    store = ClientStore(tmp_path / "clients", torch.ones(3, dtype=torch.int64).numpy(), 1 << 20)
    Checkpoints(tmp_path, "hash", 2).save(Snapshot(1, {"model": {"w": torch.zeros(9)}}, {}), store, {})
    folder = tmp_path / "round-000001"
    server, record, inside, outside = synced
    for found, path in ((server, folder / "server.safetensors"), (record, folder / "run.json")):
        assert found == (path.stat().st_ino, path.stat().st_size)
    assert (inside[0], outside[0]) == (folder.stat().st_ino, tmp_path.stat().st_ino)


def test_checksums_and_sizes_of_long_files(tmp_path: Path) -> None:
    path = tmp_path / "long"
    data = bytes(range(256)) * (3 * 4096 + 1)  # three pieces and a little
    path.write_bytes(data)
    assert sha256_here(path) == hashlib.sha256(data).hexdigest()
    assert read_here(path, len(data)) == data
    with pytest.raises(RunError, match=f"has {len(data)} bytes, more than the {len(data) - 1} allowed"):
        read_here(path, len(data) - 1)


def test_checkpoints_are_ordered_by_number(tmp_path: Path) -> None:
    for name in ("round-1000000", "round-999999", "round-000002", "round-backup", ".round-000009.tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "round-000003").write_text("no folder")
    assert [number for number, _ in rounds_in(tmp_path)] == [2, 999999, 1000000]
    assert rounds_in(tmp_path / "nowhere") == []
