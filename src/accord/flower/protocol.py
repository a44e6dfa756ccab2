"""What server and nodes say to each other: a small JSON header, and trees as safetensors bytes beside it.

Three kinds of messages (docs/federation_inside.md): `hello` (who are you, what do you hold), `join` (the method's
settings, your number and key, the initial model) and `task` (run this task on that version of your memory). Headers are
read strictly, field by field; nothing that arrives is executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accord.errors import DataError
from accord.wire.records import SHA256, Bounds, Field, check, is_whole, parse, text

PROTOCOL = 1
HELLO, JOIN, TASK = "hello", "join", "task"
BOUNDS = Bounds(size=1 << 24, depth=12, entries=1 << 20)  # of a header

Record = dict[str, Any]


@dataclass(frozen=True)
class Letter:
    """One message: what it is about, and its enclosures by name, each of them bytes of `wire.codec`."""

    header: Mapping[str, Any]
    enclosures: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all enclosures."""
        return sum(map(len, self.enclosures.values()))

    def text(self) -> str:
        """The header as it travels."""
        return json.dumps(self.header, sort_keys=True, separators=(",", ":"), allow_nan=False)


def read_header(text: str, fields: Mapping[str, Field], what: str) -> Record:
    """The header in `text` with exactly these fields; DataError for anything else."""
    record: Record = parse(text.encode("utf-8", "replace"), BOUNDS, what)
    check(record, fields, what)
    return record


def _number(value: object) -> bool:
    return type(value) in (int, float)


def _shape(value: object) -> bool:
    return isinstance(value, list) and len(value) <= 16 and all(map(is_whole, value))


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _or_null(given: Field) -> Field:
    return Field(lambda value: value is None or given.fits(value), f"{given.allowed}, or null")


def _version(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_whole, value))


def _memory(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _version(value[0]) and SHA256.fits(value[1])


WHOLE = Field(is_whole, "a whole number, not negative")
NUMBER = Field(_number, "a number")
TRUTH = Field(lambda value: isinstance(value, bool), "true or false")
OBJECT = Field(lambda value: isinstance(value, dict), "an object")
SHAPE = Field(_shape, "a list of whole numbers")
WORDS = Field(_strings, "a list of words")
ANY = text(".{0,4000}", "text of at most 4000 characters")
SITE = text(r"[^\x00-\x1f\x7f/\\]{1,100}", "a name of 1 to 100 characters, none of them / or \\")
RUN = text("[0-9a-f]{32}", "32 hexadecimal digits")
KEY = text("[0-9a-f]{1,64}", "a key in hexadecimal digits")
VERSION = Field(_version, "a version: round and exchange")
VERSIONS = Field(lambda value: isinstance(value, list) and all(map(_version, value)), "a list of versions")
MEMORY = _or_null(Field(_memory, "a version of a memory and its sha256"))  # null: none yet
DTYPE = text("float(16|32|64)|bfloat16|u?int(8|16|32|64)|bool", "a kind of numbers")
FORM = Field(
    lambda value: (
        isinstance(value, dict)
        and value.keys() == {"dtype", "shape"}
        and DTYPE.fits(value["dtype"])
        and SHAPE.fits(value["shape"])
    ),
    "dtype and shape",
)
STATUS = text("done|failed|unknown|lost|refused", "a status")

FACTS = {
    "samples": WHOLE,
    "test_samples": WHOLE,
    "x": FORM,
    "y": FORM,
    "problem": text("[a-z_]{1,40}", "a task's name"),
    "classes": WORDS,
    "vocabulary": WHOLE,
    "fields": _or_null(Field(lambda value: isinstance(value, list), "a list")),
    "inputs": OBJECT,
    "labels": OBJECT,
    "data": ANY,
}
HELLO_ASKED = {"protocol": WHOLE, "run": RUN}
HELLO_SAID = {"protocol": WHOLE, "site": SITE, "mark": SHA256, "facts": OBJECT, "allows": OBJECT, "versions": OBJECT}
JOIN_ASKED = {
    "protocol": WHOLE,
    "run": RUN,
    "hash": SHA256,
    "client": WHOLE,
    "key": KEY,
    "settings": OBJECT,
    "facts": OBJECT,
    "judges": TRUTH,
}
JOIN_SAID = {"run": RUN, "client": WHOLE, "status": STATUS, "why": ANY}
TASK_ASKED = {
    "run": RUN,
    "hash": SHA256,
    "client": WHOLE,
    "task": text(r"\w{1,60}", "a task's name"),
    "round": WHOLE,
    "version": VERSION,
    "base": MEMORY,
    "needed": VERSIONS,
    "lr": NUMBER,
    "keeps": TRUTH,
    "sends": TRUTH,
}
TASK_SAID = {
    "run": RUN,
    "hash": SHA256,
    "client": WHOLE,
    "task": text(r"\w{1,60}", "a task's name"),
    "version": VERSION,
    "memory": MEMORY,
    "status": STATUS,
    "why": ANY,
    "diverged": TRUTH,
}


def shortened(words: str, limit: int = 2000) -> str:
    """Somebody's words, so that they fit a header: the end of them says most."""
    return words if len(words) <= limit else f"... {words[-limit:]}"


def check_protocol(number: int, who: str) -> None:
    """DataError for one who speaks another version."""
    if number != PROTOCOL:
        raise DataError(f"{who} speaks version {number} of the protocol, this is version {PROTOCOL}: install the same")
