"""Bytes nobody should send: each decodes to exactly what the original held, or is refused with a sentence."""

from __future__ import annotations

import json
import random

import pytest
import torch
from safetensors.torch import load

from accord.core.tensors import Trees
from accord.errors import DataError
from accord.wire.codec import decode, encode
from accord.wire.format import spec_of
from support.fuzz import mutated
from support.messages import parts, raw, same_bits, sealed, variants, written

TREES: Trees = {
    "control": {"w": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(7)},
    "empty": {},
    "model": {
        "b": torch.tensor([True, False, True]),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "z": torch.zeros(0, 2),
    },
}
MESSAGE = encode(TREES)
HEADER, VALUES = parts(MESSAGE)


def held_to_the_original(data: bytes) -> bool:
    """Whether it is accepted, and then it is what was sent."""
    try:
        trees = decode(data, expected=spec_of(TREES))
    except DataError as error:
        if len(str(error)) > 2000:
            raise AssertionError("a sentence is short, whatever it speaks of") from error
        return False
    assert same_bits(trees, TREES)
    return True


def held_to_the_library(data: bytes) -> None:
    """Nothing is expected of it: a message that is accepted is read by safetensors alike."""
    try:
        trees = decode(data)
    except DataError:
        return
    flat = load(data)
    mine = {f"{name}/{leaf}": t for name, tree in trees.items() for leaf, t in tree.items()}
    assert mine.keys() == flat.keys()
    assert all(t.dtype == flat[name].dtype and t.shape == flat[name].shape for name, t in mine.items())
    assert all(torch.equal(raw(t), raw(flat[name])) for name, t in mine.items())


def test_two_thousand_damaged_messages() -> None:
    draw = random.Random(13)
    accepted = sum(held_to_the_original(mutated(MESSAGE, draw)) for _ in range(2000))
    assert accepted < 40  # only where the changes cancelled each other


def test_two_thousand_damaged_headers_under_a_checksum_that_holds() -> None:
    draw = random.Random(14)
    for _ in range(2000):
        data = sealed(mutated(HEADER, draw), VALUES)
        held_to_the_original(data)
        held_to_the_library(data)


def test_every_node_of_the_header_replaced_by_every_odd_thing() -> None:
    count = 0
    for text in variants(json.loads(HEADER)):
        data = sealed(text.encode(), VALUES)
        held_to_the_original(data)
        held_to_the_library(data)
        count += 1
    assert count > 1500


def test_every_odd_list_of_trees() -> None:
    header = json.loads(HEADER)
    for text in variants(["control", "empty", "model"]):
        header["__metadata__"]["trees"] = text
        data = sealed(written(header), VALUES)
        held_to_the_original(data)
        held_to_the_library(data)


def changed(**entries: object) -> bytes:
    header = json.loads(HEADER)
    for name, entry in entries.items():
        header[name.replace("_", "/")] = entry
    return sealed(written(header), VALUES)


def entry(dtype: object, shape: object, offsets: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (changed(control_w=entry("F32", [2, -3], [8, 32])), "whole numbers"),
        (changed(control_w=entry("F32", [2, True], [8, 32])), "whole numbers"),
        (changed(control_w=entry("F32", [2, 3.0], [8, 32])), "whole numbers"),
        (changed(control_w=entry("F32", [3, 3], [8, 32])), "does not fit its shape"),
        (changed(control_w=entry("F32", [2, 3], [0, 24])), "begin at"),
        (changed(control_w=entry("F32", [2, 3], [16, 40])), "begin at"),
        (changed(control_w=entry("C64", [3], [8, 32])), "dtype 'C64'; allowed: F64"),
        (changed(control_w=entry("F32", [0, 2**62, 2**62], [8, 8])), "no tensor can have"),
        (changed(control_w=entry("F32", [2**60], [8, 2**62 + 8])), "begin at|take"),
        (changed(control_w=entry("F32", [1] * 33 + [6], [8, 32])), "34 dimensions"),
        (changed(other_w=entry("F32", [0], [39, 39])), "'other' is not among those"),
        (changed(control_more=entry("F32", [1], [39, 43])), "take|begin"),
        (changed(control_=entry("F32", [0], [39, 39])), "'control/' is not the name of a tensor"),
        (changed(control_w={**entry("F32", [2, 3], [8, 32]), "more": 1}), "is not described by"),
        (sealed(HEADER, VALUES + b"\x00"), "its tensors take 39 bytes, and it holds 40"),
        (sealed(HEADER, VALUES[:-4] + b"\x02" + VALUES[-3:]), None),
        (sealed(HEADER, VALUES[:-1] + b"\x02"), "true and false"),
        (sealed(HEADER.replace(b'"empty\\"', b'"em/ty\\"'), VALUES), "'/' separates"),
        (sealed(HEADER.replace(b'"empty\\"', b'"model\\"'), VALUES), "names a tree twice"),
        (sealed(HEADER.replace(b'"trees"', b'"teers"'), VALUES), "does not name its trees"),
        (sealed(HEADER.replace(b'"control/w"', b'"controlsw"'), VALUES), "is not the name of a tensor"),
        (sealed(HEADER.replace(b'"control/step"', b'"control/w"'), VALUES), "appears twice"),
        (sealed(HEADER.rstrip()[:-1] + b',"x":NaN}', VALUES), "NaN is no number"),
        (sealed(HEADER.rstrip()[:-1] + b',"x":' + b"[" * 100_000, VALUES), "nested more than 3 deep"),
        (sealed(HEADER.rstrip()[:-1] + b',"x":' + b"9" * 100_000 + b"}", VALUES), "100000 digits"),
        (sealed(HEADER.rstrip()[:-1] + b',"x":"\\ud800"}', VALUES), "surrogates"),
        (MESSAGE[:-1], "checksum differs"),
        (MESSAGE[:20], "do not begin like one"),
        (b"", "do not begin like one"),
        ((2**63).to_bytes(8, "little") + MESSAGE[8:], "more than the"),
        ((2**20).to_bytes(8, "little") + MESSAGE[8:], "does not fit"),
        ((1).to_bytes(8, "little") + MESSAGE[8:], "checksum differs"),
        (sealed(HEADER[:29], HEADER[29:] + VALUES), "cannot be read as JSON"),
        (MESSAGE[:40], "does not fit"),
        ((5).to_bytes(8, "little") + MESSAGE[8:40], "checksum differs"),
    ],
)  # fmt: skip
def test_the_sentence(data: bytes, reason: str | None) -> None:
    if reason is None:
        assert not same_bits(decode(data), TREES)  # other values, sealed by their author: a message like any other
        return
    with pytest.raises(DataError, match=reason):
        decode(data)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("filling", [b"[", b"{", b'"', b"\\", b'\\"', b"],", b'"a":', b"{},", b"0", b" "])
def test_a_header_of_megabytes_takes_no_time(filling: bytes) -> None:
    text = HEADER.rstrip()[:-1] + b',"x":' + filling * (3_000_000 // len(filling)) + b"}"
    with pytest.raises(DataError):
        decode(sealed(text, VALUES))
