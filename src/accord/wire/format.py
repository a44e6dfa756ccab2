"""What a message may hold: kinds of numbers, names, shapes, sizes. Writer and reader ask the same questions here.

A message is a safetensors file: eight bytes with the header's length, a JSON header, the values one after the other.
Its metadata name the trees (so that empty ones arrive too) and carry a CRC-32 of the whole message, in which the
checksum's own digits count as zeros. It guards against accidents, not against an author: all else is checked as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from accord.errors import DataError
from accord.wire.records import Bounds, shown

LENGTH = 8  # bytes that say how long the header is
OPENING = b'{"__metadata__":{"checksum":"'  # how every header begins, so that the checksum has a fixed place
ZEROS = b"00000000"
OWN = ("checksum", "trees")  # the metadata's names that are not the caller's

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
# Values are copied as whole numbers of their width, least significant byte first, on every machine.
WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Spec(NamedTuple):
    """What is expected of one tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]


Specs = Mapping[str, Mapping[str, Spec]]


def spec_of(trees: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Spec]]:
    """What `decode` is to expect where trees like these are due."""
    return {name: {leaf: Spec(t.dtype, tuple(t.shape)) for leaf, t in tree.items()} for name, tree in trees.items()}


class Limits(NamedTuple):
    """How large a message may be. A reader needs about the message's own size, and 2 kB for each tensor."""

    size: int = 1 << 36  # bytes of the whole message
    header: int = 1 << 25  # bytes of its header
    tensors: int = 1 << 17  # also the most trees
    dims: int = 32

    def bounds(self) -> Bounds:
        """The same for the header's JSON: metadata or a tensor, and in it its shape."""
        return Bounds(self.header, depth=3, entries=(self.tensors + 2) * (self.dims + 8))


LIMITS = Limits()


def check_name(name: object, kind: str) -> None:
    """DataError unless it can be the name of a tree or leaf; "/" ends a tree's name on the wire."""
    check_text(name, f"the name of a {kind}")
    if not name:
        raise DataError(f"the name of a {kind} must not be empty")
    if kind == "tree" and "/" in str(name):
        raise DataError(f"{shown(name)} cannot be the name of a tree: '/' separates trees from leaves, use '.'")


def check_text(text: object, what: str) -> None:
    """DataError unless it is text that can be written."""
    if not isinstance(text, str):
        raise DataError(f"{shown(text)} cannot be {what}: it must be text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{shown(text)} cannot be {what}: it holds half a character") from error


def check_size(what: str, number: int, most: int, unit: str) -> None:
    """DataError where there is more than allowed."""
    if number > most:
        raise DataError(f"{what} has {number} {unit}, more than the {most} allowed")


def num_bytes(name: str, spec: Spec, limits: Limits) -> int:
    """The bytes its values take; DataError for a shape no tensor can have."""
    check_size(f"the shape of {shown(name)}", len(spec.shape), limits.dims, "dimensions")
    # Strides are made of the sizes alone, so a zero among them does not excuse the others.
    if math.prod(max(size, 1) for size in spec.shape) * spec.dtype.itemsize >= 1 << 63:
        raise DataError(f"{shown(name)} has the shape {shown(spec.shape)}, which no tensor can have")
    return math.prod(spec.shape) * spec.dtype.itemsize


def check_expected(given: Specs, expected: Specs) -> None:
    """DataError that names the first difference in names, kinds of numbers and shapes."""
    _same_names("tree", list(given), list(expected))
    for name in sorted(expected):
        _same_names(f"leaf of {shown(name)}", list(given[name]), list(expected[name]))
        for leaf in sorted(expected[name]):
            (dtype, shape), due = given[name][leaf], expected[name][leaf]
            if dtype != due.dtype or shape != tuple(due.shape):
                raise DataError(
                    f"the message is not the one expected: {shown(f'{name}/{leaf}')} is {dtype} {shown(shape)}, "
                    f"expected {due.dtype} {shown(tuple(due.shape))}"
                )


def _same_names(kind: str, given: Sequence[str], expected: Sequence[str]) -> None:
    for name in sorted(set(given) ^ set(expected)):
        there = "is not expected" if name in given else "is missing"
        raise DataError(f"the message is not the one expected: the {kind} {shown(name)} {there}")
