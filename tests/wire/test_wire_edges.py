"""Limits where messages are written, and files that are no plain ones."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.errors import DataError, RunError
from accord.wire import codec
from accord.wire.codec import decode, encode
from accord.wire.files import no_links, read_here, refuse_links, sha256_here
from accord.wire.format import Limits
from accord.wire.writing import as_text, digest


def test_a_message_that_is_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {"a": {"x": torch.zeros(3), "y": torch.zeros(2)}, "b": {}}
    data = encode(trees)
    header = int.from_bytes(data[:8], "little")
    assert len(data) == 8 + header + 20
    exact = Limits(size=len(data), header=header, tensors=2, dims=1)
    monkeypatch.setattr(codec, "LIMITS", exact)
    assert encode(trees) == data
    for limits, words in (
        (exact._replace(size=len(data) - 1), f"a message has {len(data)} bytes, more than the {len(data) - 1} allowed"),
        (exact._replace(header=header - 1), f"a message's header has {header} bytes"),
        (exact._replace(tensors=1), "a message has 2 tensors or trees, more than the 1 allowed"),
        (exact._replace(dims=0), "has 1 dimensions, more than the 0 allowed"),
    ):
        monkeypatch.setattr(codec, "LIMITS", limits)
        with pytest.raises(DataError, match=words):
            encode(trees)


@pytest.mark.parametrize(
    ("trees", "count"),
    [({"a": {"x": torch.zeros(1), "y": torch.zeros(1)}}, 2), ({"a": {}, "b": {}, "c": {}}, 3)],
    ids=["tensors", "trees"],
)
def test_tensors_and_trees_are_limited_alike(trees: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LIMITS", Limits(tensors=count))
    encode(trees)
    monkeypatch.setattr(codec, "LIMITS", Limits(tensors=count - 1))
    with pytest.raises(DataError, match=f"a message has {count} tensors or trees, more than the {count - 1} allowed"):
        encode(trees)


def test_names_travel_as_they_are_written() -> None:
    assert "größe/é".encode() in encode({"größe": {"é": torch.zeros(1)}})


def test_trees_are_named_in_a_plain_list() -> None:
    def message(trees: str) -> bytes:
        head = json.dumps({"__metadata__": {"checksum": "00000000", "trees": trees}}, separators=(",", ":")).encode()
        data = struct.pack("<Q", len(head)) + head
        return data.replace(b"00000000", f"{zlib.crc32(data):08x}".encode())

    assert decode(message('["a","b"]')) == {"a": {}, "b": {}}
    assert list(decode(message('["b","a"]'))) == ["a", "b"], "in the order of their names"
    with pytest.raises(DataError, match="nested more than 1 deep"):
        decode(message('[["a"]]'))
    with pytest.raises(DataError, match="more than 1 entries"):
        decode(message('["a","b"]'), limits=Limits(tensors=1))


def test_no_digest_of_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest({"a": math.nan})
    assert as_text({"a": 1.5}) == '{"a": 1.5}'


def test_files_are_read_if_they_are_plain_and_small(tmp_path: Path) -> None:
    path, link, pipe = tmp_path / "a", tmp_path / "link", tmp_path / "pipe"
    path.write_bytes(b"12345")
    link.symlink_to(path)
    os.mkfifo(pipe)
    assert read_here(path, 5) == b"12345"
    with pytest.raises(RunError, match="has 5 bytes, more than the 4 allowed"):
        read_here(path, 4)
    assert sha256_here(path) == hashlib.sha256(b"12345").hexdigest()
    for read in (lambda p: read_here(p, 5), sha256_here):
        with pytest.raises(RunError, match="is a symbolic link"):
            read(link)
        with pytest.raises(RunError, match="is no plain file"):
            read(pipe)
    with pytest.raises(RunError, match="link is a symbolic link"):
        refuse_links(path, link)
    refuse_links(path)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="who has what open is not told here")
def test_what_is_refused_is_not_left_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(RunError, match="is no plain file"):
            read_here(tmp_path / "pipe", 5)
    assert len(os.listdir("/proc/self/fd")) < before + 20


def test_a_new_file_may_be_read_by_others_as_their_mask_has_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with open(tmp_path / "new", "w", opener=no_links) as file:
            file.write("x")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o644
