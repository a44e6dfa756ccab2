"""Messages as an author could write them: any header, any values, and the right checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

import torch

from accord.core.tensors import Trees

CHECKSUM = slice(8 + len(b'{"__metadata__":{"checksum":"'), 8 + len(b'{"__metadata__":{"checksum":"') + 8)


def parts(message: bytes) -> tuple[bytes, bytes]:
    """Header and values of a safetensors file."""
    end = 8 + int.from_bytes(message[:8], "little")
    return message[8:end], message[end:]


def sealed(header: bytes, values: bytes) -> bytes:
    """A message with a checksum that holds, whatever it says."""
    whole = bytearray(len(header).to_bytes(8, "little") + header + values)
    whole[CHECKSUM] = b"00000000"
    whole[CHECKSUM] = f"{zlib.crc32(whole):08x}".encode()
    return bytes(whole)


def written(value: Any) -> bytes:
    """JSON as `encode` spaces it."""
    return json.dumps(value, separators=(",", ":")).encode()


def same_bits(a: Trees, b: Trees) -> bool:
    """Equal names, kinds, shapes and bytes (NaN equals itself)."""
    return a.keys() == b.keys() and all(
        a[tree].keys() == b[tree].keys()
        and all(
            x.dtype == b[tree][leaf].dtype
            and x.shape == b[tree][leaf].shape
            and torch.equal(raw(x), raw(b[tree][leaf]))
            for leaf, x in a[tree].items()
        )
        for tree in a
    )


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


# What may stand anywhere in JSON and nearly never should. A text in brackets is put in as it is.
ODD = [
    None, True, False, -1, 0, 1, 3, 2**31, 2**63, 2**64, 10**19, 1.5, -0.0, "", "x", "/", "a/b", "F32", "../../x",
    "\x00", [], [0], [-1], [1, 2, 3], {}, {"a": 1}, [[]], "<NaN>", "<Infinity>", "<1e999>", "<\"\\ud800\">",
    f"<{'9' * 5000}>", f"<{'[' * 50 + ']' * 50}>", '<{"a":1,"a":1}>',
]  # fmt: skip


def variants(value: Any) -> Iterator[str]:
    """JSON texts of `value` with one node replaced, removed, doubled or renamed, for every node and every odd thing."""
    for changed in _changed(value):
        text = json.dumps(changed, separators=(",", ":"))
        for odd in ODD:
            if isinstance(odd, str) and odd.startswith("<"):
                text = text.replace(json.dumps(odd), odd[1:-1])
        yield text


def _changed(value: Any) -> Iterator[Any]:
    yield from ODD
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
            for name in ("", "x", "a/", "/a", "b/w", "__metadata__", "trees"):
                yield {name if k == key else k: v for k, v in value.items()}
            for changed in _changed(value[key]):
                yield {**value, key: changed}
        yield {**value, "more": 1}
    if isinstance(value, list):
        for place in range(len(value)):
            yield value[:place] + value[place + 1 :]
            yield [*value[:place], value[place], *value[place:]]
            for changed in _changed(value[place]):
                yield [*value[:place], changed, *value[place + 1 :]]
        yield value[::-1]
