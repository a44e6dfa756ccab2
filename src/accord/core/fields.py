"""Several inputs of a sample in one row of numbers, and apart again just before a network sees them.

Everything between the data and the network (pools, batches, executors, messages) then handles one tensor, whatever a
sample is made of. Whole numbers are exact in float32 up to 2^24, and larger ones are refused where rows are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from accord.errors import DataError

EXACT = 1 << 24  # the largest whole number up to which float32 holds every one


@dataclass(frozen=True)
class Field:
    """One input: its name, its shape, and whether it is whole numbers (token ids), of which there are `vocabulary`."""

    name: str
    shape: tuple[int, ...]
    vocabulary: int = 0  # 0: real numbers

    @property
    def size(self) -> int:
        """Numbers of it in a row."""
        return prod(self.shape)


@dataclass(frozen=True)
class Fields:
    """The inputs of a sample in the order they lie in its row."""

    fields: tuple[Field, ...]

    @property
    def size(self) -> int:
        """Numbers in a row."""
        return sum(field.size for field in self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """What a network's arguments are called."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def _sizes(self) -> list[int]:
        return [field.size for field in self.fields]

    def __getitem__(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def packed(self, values: Mapping[str, Tensor]) -> Tensor:
        """[N, size] rows."""
        return torch.cat(
            [values[name].reshape(len(values[name]), -1).to(torch.get_default_dtype()) for name in self.names], 1
        )

    def unpacked(self, rows: Tensor) -> dict[str, Tensor]:
        """[N, ...] inputs by name, as they were given."""
        parts = torch.split(rows, self._sizes, 1)
        return {
            field.name: _as(field, part.reshape(len(rows), *field.shape))
            for field, part in zip(self.fields, parts, strict=True)
        }


def _as(field: Field, values: Tensor) -> Tensor:
    return values.long() if field.vocabulary else values


def field_of(name: str, values: Tensor) -> Field:
    """The field for [N, ...] values, real or whole numbers."""
    shape = tuple(values.shape[1:])
    if values.is_floating_point():
        return Field(name, shape)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > EXACT:
        raise DataError(
            f"the input {name!r} holds whole numbers from {low} to {high}: beside other inputs they must lie between 0 "
            f"and 2^24 = {EXACT:,}; number them anew, or give them as real numbers"
        )
    return Field(name, shape, high + 1)
