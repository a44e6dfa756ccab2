"""Several inputs per sample as one row of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from accord.core.fields import Fields, field_of
from accord.data.own.conversion import as_array, inputs
from accord.errors import DataError

Values = dict[str, Tensor]


def values_of(x: Mapping[str, Any], what: str) -> Values:
    """[N, ...] tensors by name: real numbers, pixels as shares of 255, whole numbers as token ids."""
    if not x or not all(isinstance(name, str) and name.isidentifier() for name in x):
        raise DataError(f"{what} as a dictionary needs names that can be a network's arguments, got {list(x)[:10]}")
    found = {name: _values(value, f"{what}[{name!r}]") for name, value in x.items()}
    lengths = {name: len(value) for name, value in found.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"all inputs of {what} need a row for every sample; got {lengths}")
    return found


def fields_of(parts: Sequence[Values]) -> Fields:
    """What a row holds; train and test must hold the same."""
    first = parts[0]
    for other in parts[1:]:
        alike = first.keys() == other.keys() and all(
            other[name].shape[1:] == value.shape[1:] and other[name].dtype == value.dtype
            for name, value in first.items()
        )
        if not alike:
            raise DataError("train and test inputs must have the same names, shapes and kinds of numbers")
    return Fields(tuple(field_of(name, torch.cat([part[name] for part in parts])) for name in first))


def _values(value: Any, what: str) -> Tensor:
    array = as_array(value, what)
    one = array.ndim == 1
    tensor = inputs(array[:, None] if one else array, what)
    if tensor.dtype == torch.uint8:
        tensor = tensor.to(torch.get_default_dtype()) / 255
    return tensor[:, 0] if one else tensor
