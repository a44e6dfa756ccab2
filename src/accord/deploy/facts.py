"""What a network was built from beside its settings: token ids there are, and several inputs packed into one row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core.fields import Field as Input
from accord.core.fields import Fields
from accord.core.types import Facts
from accord.data.own.sequences import padded
from accord.errors import DataError
from accord.wire.records import ANY_TEXT, WHOLE, Field, check, is_whole

LARGEST = 1 << 31  # numbers of one input
SHAPE = Field(
    lambda value: isinstance(value, list) and all(map(is_whole, value)) and 0 < math.prod(value) < LARGEST,
    "whole numbers above 0",
)
LIST = Field(lambda value: value is None or (isinstance(value, list) and len(value) > 0), "a list of inputs, or null")


def facts_of(record: Mapping[str, Any]) -> Facts:
    """As a network's factory may want them; of clients nothing is known."""
    given = record["facts"]
    check(given, {"vocabulary": WHOLE, "fields": LIST}, "facts")
    fields = None
    if given["fields"] is not None:
        for one in given["fields"]:
            if not isinstance(one, dict):
                raise DataError("an input must be an object with name, shape and vocabulary")
            check(one, {"name": ANY_TEXT, "shape": SHAPE, "vocabulary": WHOLE}, "an input")
        fields = Fields(tuple(Input(f["name"], tuple(f["shape"]), f["vocabulary"]) for f in given["fields"]))
    return Facts(
        tuple(record["inputs"]["shape"]),
        record["outputs"],
        np.ones(1, dtype=np.int64),
        problem=record["problem"],
        vocabulary=given["vocabulary"],
        fields=fields,
    )


def packed(fields: Fields, raw: Any) -> Tensor:
    """[N, size] rows of raw samples: arrays by the inputs' names, or sequences of token ids where these are all."""
    names = ", ".join(fields.names)
    if is_ragged(fields, raw):
        raw = dict(zip(("tokens", "mask"), padded(raw, fields["tokens"].shape[0], "sequence"), strict=True))
    if not isinstance(raw, Mapping):
        raise DataError(f"a sample of this model is several inputs: give a mapping with {names}")
    absent = [name for name in fields.names if name not in raw]
    if absent:
        raise DataError(f"there is no input {absent[0]!r}; the model takes {names}")
    values = {name: torch.as_tensor(np.asarray(raw[name])) for name in fields.names}
    for one in fields.fields:
        found = values[one.name]
        if tuple(found.shape[1:]) != one.shape or len(found) != len(values[fields.names[0]]):
            raise DataError(
                f"the input {one.name!r} must be [N, {', '.join(map(str, one.shape))}] for all of the same N samples, "
                f"got {tuple(found.shape)}"
            )
        check_tokens(found, one.vocabulary, f"the input {one.name!r}")
    return fields.packed(values)


def is_ragged(fields: Fields | None, raw: Any) -> bool:
    """Whether samples are sequences of token ids, yet to be padded."""
    return fields is not None and set(fields.names) == {"tokens", "mask"} and not isinstance(raw, Mapping)


def check_tokens(ids: Tensor, vocabulary: int, what: str) -> None:
    """Refuse token ids the network has never heard of; a vocabulary of 0 is none."""
    if vocabulary and ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= vocabulary):
        raise DataError(
            f"{what} holds token ids from {int(ids.min())} to {int(ids.max())}; known are 0 to {vocabulary - 1}"
        )
