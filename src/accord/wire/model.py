"""A model's folder: a record of what it is, its values, and those in which the clients' own models differ from it.

    model.json            what the network is, what it takes and what its answers mean
    model.safetensors     its values, by the names its owner gave them
    shared.safetensors    where the server has no whole model: what all clients' models have in common
    clients/NAME.safetensors
    README.md             the same for people

Values are plain safetensors files, which other programs read too. Whatever is read here may be somebody else's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from accord.core.tensors import Tree
from accord.errors import DataError, RunError
from accord.wire.files import read_here
from accord.wire.format import LENGTH, LIMITS
from accord.wire.records import ANY_TEXT, SHA256, TEXTS, Bounds, Field, check, is_whole, parse, shown, text

FOLDER, RECORD, WEIGHTS, SHARED, CLIENTS, CARD = (
    *("model", "model.json", "model.safetensors", "shared.safetensors"),
    *("clients", "README.md"),
)
FORMAT = 1
BOUNDS = Bounds(size=1 << 27, depth=12, entries=1 << 22)  # of the record

FILE_NAME = re.compile(
    r"\w[\w+=,@.-]{0,150}\.safetensors"
)  # of letters and digits in any script; no folder, no dot first
NAME = Field(
    lambda value: isinstance(value, str) and FILE_NAME.fullmatch(value) is not None, f"the name of a file in {CLIENTS}"
)
_ENTRY = {"number": Field(is_whole, "the client's number"), "file": NAME, "sha256": SHA256}


def _is_client(entry: object) -> bool:
    return (
        isinstance(entry, dict) and entry.keys() == _ENTRY.keys() and all(f.fits(entry[n]) for n, f in _ENTRY.items())
    )


def _records(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _or_null(field: Field) -> Field:
    return Field(lambda value: value is None or field.fits(value), f"{field.allowed}, or null")


OBJECT = Field(lambda value: isinstance(value, dict), "an object")
WORDS = Field(lambda value: isinstance(value, list) and all(isinstance(word, str) for word in value), "a list of words")
FIELDS = {
    "format": Field(lambda value: value == FORMAT, f"{FORMAT}"),
    "network": OBJECT,
    "around": Field(_records, "a list of objects"),
    "dtype": text("float(16|32|64)|bfloat16", "a kind of real numbers"),
    "inputs": OBJECT,
    "facts": OBJECT,
    "problem": ANY_TEXT,
    "outputs": Field(lambda value: is_whole(value) and value > 0, "a whole number above 0"),
    "classes": WORDS,
    "method": ANY_TEXT,
    "data": ANY_TEXT,
    "versions": TEXTS,
    "weights": _or_null(SHA256),
    "shared": _or_null(SHA256),
    "clients": Field(
        lambda value: isinstance(value, dict) and all(map(_is_client, value.values())),
        "clients' names, each with its number, its file and the file's sha256",
    ),
}


class Encoded(NamedTuple):
    """A file's bytes and their checksum."""

    data: bytes
    sha256: str


def encode_values(values: Mapping[str, Tensor]) -> Encoded:
    """The same bytes for the same values."""
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in values.items()}  # tied ones become two
    data = safetensors.torch.save(plain, metadata={"format": "pt"})
    return Encoded(data, hashlib.sha256(data).hexdigest())


def read_record(folder: Path) -> dict[str, Any]:
    """What `model.json` says, held to its fields."""
    path = folder / RECORD
    try:
        record: dict[str, Any] = parse(read_here(path, BOUNDS.size), BOUNDS, str(path))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except RunError as error:
        raise DataError(str(error)) from error
    if record.get("format") != FORMAT:
        raise DataError(
            f"{path} is written in format {shown(record.get('format'))}, this version reads format {FORMAT}"
        )
    check(record, FIELDS, str(path))
    return record


def read_values(path: Path, sha256: str) -> Tree:
    """The values in a file, if it is the one recorded."""
    try:
        data = read_here(path, LIMITS.size)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except RunError as error:
        raise DataError(str(error)) from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(f"{path} is not the file {RECORD} names: its checksum differs")
    length = int.from_bytes(data[:LENGTH], "little")
    if length > LIMITS.header:
        raise DataError(f"{path} has a header of {length} bytes, more than the {LIMITS.header} allowed")
    try:
        values: dict[str, Tensor] = safetensors.torch.load(data)
    except (SafetensorError, ValueError, RuntimeError, KeyError, TypeError, OverflowError) as error:
        raise DataError(f"{path} is no safetensors file: {error}") from error
    return {name: value.clone() for name, value in values.items()}


def dtype_of(record: Mapping[str, Any]) -> torch.dtype:
    """The kind of numbers the network computes with."""
    found: torch.dtype = getattr(torch, record["dtype"])
    return found
