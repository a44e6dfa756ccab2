"""Own data and an own network: what all runs of a study are given beside their settings.

A configuration does not say what is in them, nor in the table or the folder it names, so a study's folder is told apart
by their digest as well: numbers made from other data are never taken for those of these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from accord.config import RunConfig
from accord.data.federated import Dataset, FederatedData
from accord.engine.build import load_data
from accord.engine.settled import OWN_FILES, handed_over, settled
from accord.errors import ConfigError


@dataclass(frozen=True)
class Inputs:
    """What `accord.run` takes as `data` and `model`; None: what the configuration names."""

    data: FederatedData | Dataset | None = None
    model: nn.Module | None = None
    files: Dataset | None = None  # what the configuration's own files hold: it has their place, and not their contents

    def __post_init__(self) -> None:
        if not isinstance(self.data, FederatedData | Dataset | None):
            raise ConfigError(
                f"data is a {type(self.data).__name__}: give what accord.from_arrays, accord.from_torch, "
                "accord.load_dataset or accord.federate returns"
            )
        if not isinstance(self.model, nn.Module | None):
            raise ConfigError(f"model is a {type(self.model).__name__}: give a torch module, see accord.adapt")

    def with_files_of(self, config: RunConfig) -> Inputs:
        """Itself and what is in the files of the user's own that the configuration names."""
        if self.data is not None or config.data.name not in OWN_FILES:
            return self
        return replace(self, files=load_data(config))

    def settled(self, config: RunConfig) -> RunConfig:
        """The configuration of one run with nothing left open."""
        if self.data is not None:
            return settled(handed_over(config), self.data)
        return settled(config, self.files if config.data.name in OWN_FILES else None)

    @property
    def dealt(self) -> bool:
        """Whether the data came divided, so that the settings of the partition are not used."""
        return isinstance(self.data, FederatedData)

    @cached_property
    def digest(self) -> str:
        """The same for the same samples, division, network and weights; empty when nothing is given."""
        if self.data is None and self.model is None and self.files is None:
            return ""
        known = hashlib.sha256()
        for piece in _pieces([self.data or self.files, self.model]):
            known.update(len(piece).to_bytes(8, "little"))
            known.update(piece)
        return known.hexdigest()


def _pieces(value: Any) -> Iterator[bytes | memoryview]:
    """A value as a sequence of bytes, its type with it."""
    yield type(value).__qualname__.encode()
    if isinstance(value, Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield _bytes(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield _bytes(value)
    elif isinstance(value, nn.Module):
        yield repr(value).encode()
        yield from _pieces(value.state_dict())
    elif is_dataclass(value):
        for item in fields(value):
            yield item.name.encode()
            yield from _pieces(getattr(value, item.name))
    elif isinstance(value, Mapping):
        yield from _all(pair for item in value.items() for pair in item)
    elif isinstance(value, (set, frozenset)):
        yield from _all(sorted(value))
    elif isinstance(value, (list, tuple)):
        yield from _all(value)
    elif isinstance(value, (str, int, float, bytes, type(None))):
        yield repr(value).encode()
    else:  # a function, such as a change of a client's inputs: its name is all there is to compare
        yield str(getattr(value, "__qualname__", "")).encode()


def _all(values: Iterable[Any]) -> Iterator[bytes | memoryview]:
    for value in values:
        yield from _pieces(value)


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
