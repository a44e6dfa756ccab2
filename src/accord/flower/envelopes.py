"""Letters as Flower's messages, and back. Flower shares equal enclosures between messages and cuts them into pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from accord.errors import DataError
from accord.flower.protocol import HELLO, JOIN, TASK, Letter

TYPES = {HELLO: "query.hello", JOIN: "query.join", TASK: "train.task"}
HEADER, TREES, FORM = "accord", "trees", "safetensors"
WHOLE = 1 << 25  # bytes up to which an enclosure travels as one piece: every piece is a call at four places
Piece = ConfigRecord | ArrayRecord


class Enclosures:
    """Bytes as Flower's records, made once however many messages hold them: Flower finds them equal by their sum."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[bytes, Piece]] = {}

    def record(self, data: bytes) -> Piece:
        """The record of these bytes; of many it is an array, which Flower cuts into pieces."""
        known = self._made.get(id(data))
        if known is None:
            made = ConfigRecord({TREES: data}) if len(data) <= WHOLE else _array(data)
            known = self._made[id(data)] = data, made
        return known[1]


def _array(data: bytes) -> ArrayRecord:
    return ArrayRecord({TREES: Array("uint8", (len(data),), FORM, data)})


def content_of(letter: Letter, shared: Enclosures | None = None) -> RecordDict:
    """A letter as what a message of Flower holds."""
    made = shared or Enclosures()
    content = RecordDict({HEADER: ConfigRecord({"header": letter.text()})})
    for name, data in letter.enclosures.items():
        content[name] = made.record(data)
    return content


def opened(content: RecordDict, names: Mapping[str, int], what: str) -> tuple[str, dict[str, bytes]]:
    """The header's text and the enclosures; DataError for anything but those `names`, each at most so many bytes."""
    if HEADER not in content or set(content) - {HEADER, *names}:
        found = ", ".join(sorted(map(str, content)))[:200]
        raise DataError(f"{what} holds {found or 'nothing'}; allowed: {', '.join([HEADER, *names])}")
    header = content[HEADER]
    if not isinstance(header, ConfigRecord) or not isinstance(header.get("header"), str) or len(header) != 1:
        raise DataError(f"{what} has no readable header")
    enclosures = {name: _bytes(content[name], names[name], f"{name} of {what}") for name in names if name in content}
    return str(header["header"]), enclosures


def _bytes(record: Any, most: int, what: str) -> bytes:
    if not isinstance(record, ConfigRecord | ArrayRecord) or list(record) != [TREES]:
        raise DataError(f"{what} is no enclosure of {FORM} bytes")
    data = record[TREES].data if isinstance(record, ArrayRecord) else record[TREES]
    if not isinstance(data, bytes) or (isinstance(record, ArrayRecord) and record[TREES].stype != FORM):
        raise DataError(f"{what} is no enclosure of {FORM} bytes")
    if len(data) > most:
        raise DataError(f"{what} has {len(data)} bytes, more than the {most} allowed")
    return data


def message_to(node: int, kind: str, letter: Letter, ttl: float, group: str, shared: Enclosures) -> Message:
    """A message of the server's."""
    return Message(content_of(letter, shared), node, TYPES[kind], ttl=ttl, group_id=group)
