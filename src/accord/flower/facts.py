"""What a federation's server knows of its sites: facts about their data, never the data.

`Facts` of one site arrive with its hello. All sites' facts together make an `Outline`: a division in which everything
but the samples is true. In their place stand made-up ones, so that a network can be tried and the form of an answer
known before anybody is asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core.fields import Field, Fields
from accord.data.federated import FederatedData, Groups, Index, Pool
from accord.data.inputs import Inputs
from accord.errors import DataError
from accord.flower.protocol import FACTS
from accord.problems import PROBLEMS
from accord.wire.records import check, shown

STAND_INS = 64  # made-up samples, at least
MOST_SAMPLES = 1 << 31


@dataclass(frozen=True)
class Form:
    """Kind of numbers and shape of one sample's inputs or labels."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, samples: Tensor) -> Form:
        """Of samples [N, ...]."""
        return cls(str(samples.dtype).removeprefix("torch."), tuple(samples.shape[1:]))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"dtype": self.dtype, "shape": list(self.shape)}


@dataclass(frozen=True)
class SiteFacts:
    """What one site says of its data."""

    samples: int
    test_samples: int
    x: Form
    y: Form
    problem: str
    classes: tuple[str, ...]
    vocabulary: int
    fields: Fields | None
    inputs: Inputs
    labels: Mapping[str, Any]  # of its training labels: which class is most frequent, and how; empty: it keeps that
    data: str  # what the site calls it

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "samples": self.samples,
            "test_samples": self.test_samples,
            "x": self.x.to_json(),
            "y": self.y.to_json(),
            "problem": self.problem,
            "classes": list(self.classes),
            "vocabulary": self.vocabulary,
            "fields": None if self.fields is None else fields_to_json(self.fields),
            "inputs": self.inputs.to_json(),
            "labels": dict(self.labels),
            "data": self.data,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any], who: str) -> SiteFacts:
        """What `to_json` gave; anything else is a DataError."""
        check(record, FACTS, f"what {who} says of its data")
        if record["problem"] not in PROBLEMS:
            raise DataError(f"{who} has data for the task {shown(record['problem'])}; known: {', '.join(PROBLEMS)}")
        x, y = (Form(record[name]["dtype"], tuple(record[name]["shape"])) for name in ("x", "y"))
        if not x.shape or math.prod(x.shape) > 1 << 31 or max(record["samples"], record["test_samples"]) > MOST_SAMPLES:
            raise DataError(f"{who} tells of samples that no network takes: {shown(record['x'])}")
        if not record["classes"] or len(record["classes"]) > 1 << 20:
            raise DataError(f"{who} names no classes or outputs, or too many")
        fields = None if record["fields"] is None else fields_from_json(record["fields"], who)
        return cls(
            record["samples"],
            record["test_samples"],
            x,
            y,
            record["problem"],
            tuple(record["classes"]),
            record["vocabulary"],
            fields,
            Inputs.from_json(record["inputs"]),
            _labels(record["labels"], who),
            record["data"],
        )


def _labels(given: Mapping[str, Any], who: str) -> dict[str, Any]:
    allowed = {"class": str, "class_share": float, "label_mean": float}
    for name, value in given.items():
        if name not in allowed or not (isinstance(value, allowed[name]) or type(value) is int):
            raise DataError(f"{who} tells {shown(name)} = {shown(value)} of its labels")
    return dict(given)


def fields_to_json(fields: Fields) -> list[dict[str, Any]]:
    """The several inputs of a sample as plain values."""
    return [{"name": one.name, "shape": list(one.shape), "vocabulary": one.vocabulary} for one in fields.fields]


def fields_from_json(given: Sequence[Any], who: str) -> Fields:
    """What `fields_to_json` gave."""
    made = []
    for one in given:
        fits = (
            isinstance(one, dict)
            and one.keys() == {"name", "shape", "vocabulary"}
            and isinstance(one["name"], str)
            and one["name"].isidentifier()
            and isinstance(one["shape"], list)
            and all(type(size) is int and size >= 0 for size in [*one["shape"], one["vocabulary"]])
        )
        if not fits:
            raise DataError(f"{who} tells of an input {shown(one)}, which is none")
        made.append(Field(one["name"], tuple(one["shape"]), one["vocabulary"]))
    return Fields(tuple(made))


def check_alike(first: SiteFacts, other: SiteFacts, who: str) -> None:
    """DataError unless a site's data can be learned from together with the others'."""
    for name, was, now in (
        ("samples of the form", first.x, other.x),
        ("labels of the form", first.y, other.y),
        ("the task", first.problem, other.problem),
        ("the classes", first.classes, other.classes),
        ("the inputs", first.fields, other.fields),
        ("the preparation of inputs", first.inputs, other.inputs),
    ):
        if was != now:
            raise DataError(
                f"{who} has {name} {shown(now)}, others have {shown(was)}: all sites must prepare their data alike "
                "(the same columns and classes in the same order; data.normalise = false, or one data.schema for all)"
            )


@dataclass(frozen=True)
class _Places(Groups):
    """Of a site it is known how many samples it has; places in the pool are made up when they are asked for."""

    pool: int = 1

    @classmethod
    def counted(cls, counts: Sequence[int], pool: int) -> _Places:
        """So many samples at each site. `order` is one zero, shown as often as needed: it takes no memory."""
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(np.broadcast_to(np.int64(0), int(offsets[-1])), offsets, pool)

    def __getitem__(self, client: int) -> Index:
        return np.arange(int(self.sizes[client]), dtype=np.int64) % self.pool


@dataclass(frozen=True)
class Outline(FederatedData):
    """A division whose samples are elsewhere: its pools hold made-up ones of the right form."""

    token_ids: int = 0
    told: tuple[Mapping[str, Any], ...] = ()  # what every site says of its labels

    @property
    def vocabulary(self) -> int:
        """The most token ids any site has."""
        return self.token_ids


def outline(sites: Mapping[str, SiteFacts]) -> Outline:
    """All sites' facts as one division, in the order they are given; they must be alike."""
    names, known = tuple(sites), list(sites.values())
    first = known[0]
    for name, facts in sites.items():
        check_alike(first, facts, f"site {name!r}")
    vocabulary = max(facts.vocabulary for facts in known)
    pool = _stand_ins(first, vocabulary)
    train = _Places.counted([facts.samples for facts in known], len(pool))
    test = _Places.counted([facts.test_samples for facts in known], len(pool))
    called = sorted({facts.data for facts in known})
    return Outline(
        called[0] if len(called) == 1 else "federation",
        pool,
        pool,
        len(first.classes),
        train,
        _Places.counted([0] * len(known), len(pool)),
        test,
        classes=first.classes,
        names=names,
        problem=first.problem,
        fields=first.fields,
        raw=first.inputs,
        division="natural",
        token_ids=vocabulary,
        told=tuple(facts.labels for facts in known),
    )


def _stand_ins(facts: SiteFacts, vocabulary: int) -> Pool:
    """Samples of the right form, with every class among their labels."""
    count = max(STAND_INS, len(facts.classes)) if facts.problem == "classification" else STAND_INS
    size = max(1, min(count, (1 << 26) // max(1, math.prod(facts.x.shape))))
    x = _values(facts.x, size, len(facts.classes), vocabulary, plain=facts.fields is not None)
    return Pool(x, _values(facts.y, size, len(facts.classes), len(facts.classes)))


def _values(form: Form, count: int, classes: int, below: int, *, plain: bool = False) -> Tensor:
    """Numbers that vary: whole ones below `below`, real ones between -1 and 1; `plain`: zeros."""
    dtype: torch.dtype = getattr(torch, form.dtype)
    total = count * math.prod(form.shape)
    if plain:
        return torch.zeros((count, *form.shape), dtype=dtype)
    if dtype.is_floating_point:
        spread = torch.linspace(-1, 1, total, dtype=torch.float64)
        mixed = spread[torch.from_numpy(np.random.default_rng(0).permutation(total))]
        return mixed.reshape(count, *form.shape).to(dtype)
    return (torch.arange(total) % max(below, 1)).reshape(count, *form.shape).to(dtype)
