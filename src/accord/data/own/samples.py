"""Many samples as one array: tensors, arrays and PIL images of the same shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.data.own.conversion import as_array
from accord.errors import DataError


def stacked(samples: Sequence[Any], what: str) -> Tensor | np.ndarray[Any, Any]:
    """One array or tensor of equally shaped samples; PIL images become bytes, channels first."""
    if not samples:
        raise DataError(f"{what} is empty")
    arrays = [
        sample if isinstance(sample, Tensor) else as_array(_pixels(sample), f"sample {place} of {what}")
        for place, sample in enumerate(samples)
    ]
    first = tuple(arrays[0].shape)
    odd = next((place for place, array in enumerate(arrays) if tuple(array.shape) != first), None)
    if odd is not None:
        raise DataError(
            f"{what}: sample 0 has shape {first} but sample {odd} has {tuple(arrays[odd].shape)}; "
            "all samples need the same shape (resize or pad them)"
        )
    if isinstance(arrays[0], Tensor):
        return torch.stack([torch.as_tensor(array) for array in arrays])
    return np.stack([as_array(array, what) for array in arrays])


def _pixels(sample: Any) -> Any:
    if not hasattr(sample, "getbands"):  # only PIL images have this method
        return sample
    if sample.mode in ("I", "I;16", "F"):
        raise DataError(f"images with {sample.mode!r} pixels are not supported; use 8 bits per channel")
    grey = sample.mode in ("1", "L", "LA")
    # a palette may hide transparency, which only RGBA can express
    full = sample.convert("RGBA") if sample.mode in ("P", "PA") else sample
    pixels = np.asarray(full.convert("L" if grey else "RGB"))
    return pixels if grey else pixels.transpose(2, 0, 1)
