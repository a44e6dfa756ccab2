"""A node whose owner means harm: ours, but for what it says. The kind of harm is in the file HARM names, as it changes.

`python -m support.hostile_superexec ...` stands where a node finds `flower-superexec`.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.app.message.arraychunk import ArrayChunk

from accord.federation import own_superexec
from accord.flower import apps, envelopes
from accord.flower.node import NodeService
from accord.flower.protocol import HELLO, TASK, Letter
from accord.wire.codec import decode, encode

HARM = "ACCORD_TEST_HARM"
TEN = 10 << 30  # bytes
truth = NodeService.answer


def kind_of_harm() -> str:
    return Path(os.environ[HARM]).read_text().strip()


def said(self: NodeService, kind: str, header: str, enclosures: Mapping[str, bytes]) -> Letter:
    """What an honest node would say, made worse."""
    harm = kind_of_harm()
    letter = truth(self, kind, header, enclosures)
    if kind == HELLO and harm == "forged name":
        return Letter({**letter.header, "site": "site-0"})
    if kind != TASK or json.loads(header)["task"] != "train" or "reply" not in letter.enclosures:
        return letter
    return worse(letter, harm)


def worse(letter: Letter, harm: str) -> Letter:
    """One answer to a training."""
    trees, others = decode(letter.enclosures["reply"]), dict(letter.enclosures)
    first = next(iter(trees["model"]))
    if harm == "nan":
        trees["model"][first] = trees["model"][first] * float("nan")
    elif harm == "wrong shapes":
        trees["model"][first] = torch.zeros(1000)
    elif harm == "old round":
        return Letter({**letter.header, "version": [1, 0]}, others)
    elif harm == "other client":
        return Letter({**letter.header, "client": 0}, others)
    elif harm == "huge":
        trees["model"][first] = torch.zeros(16 << 20)  # 64 MiB, where one is allowed
    elif harm == "says 10 GiB":
        return Letter(letter.header, {**others, "reply": saying_ten(encode(trees))})
    return Letter(letter.header, {**others, "reply": encode(trees)})


def saying_ten(data: bytes) -> bytes:
    """A tensor that is 10 GiB long by its header."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    entry = header[next(name for name in header if name != "__metadata__")]
    begin = entry["data_offsets"][0]
    entry |= {"shape": [TEN // 4], "data_offsets": [begin, begin + TEN]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def packed(letter: Letter, *more: Any) -> RecordDict:
    """As Flower's message; Flower sends equal pieces once, so that 10 GiB are a few megabytes on the wire."""
    content = envelopes.content_of(letter, *more)
    if kind_of_harm() == "is 10 GiB" and letter.header.get("task") == "train" and "reply" in letter.enclosures:
        content["reply"] = ArrayRecord({envelopes.TREES: Array("uint8", (TEN,), envelopes.FORM, b"")})
        piece = ArrayChunk(memoryview(bytes(5 << 20)))
        pieces = [(piece.object_id, piece)] * (TEN // (5 << 20))
        content["reply"][envelopes.TREES].__dict__["_chunks"] = pieces  # what Flower would cut the array into
    return content


def main() -> None:
    """Otherwise as any node."""
    NodeService.answer = said  # type: ignore[method-assign]
    apps.content_of = packed
    own_superexec.main()


if __name__ == "__main__":
    main()
