"""The one in-memory form of federated data: tensors once, an index list per client.

N samples, K clients. A pool holds all samples of the train or the test part; clients hold positions in a pool,
so a hundred thousand clients cost their index lists and nothing more. Pixels stay bytes until they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accord.core.fields import Fields
from accord.core.tensors import normalised
from accord.core.types import Facts
from accord.data.inputs import Inputs
from accord.errors import DataError

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pool:
    """Samples and labels. Byte images become floats in [0, 1], then `(x - mean) / std` per channel."""

    x: Tensor  # [N, ...] uint8 (images, channels first) or floating point
    y: Tensor  # [N] int64, or as the problem has them
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, tensor in (("x", self.x), ("y", self.y)):
            if tensor.layout is not torch.strided:
                raise DataError(f"{name} is a sparse tensor ({tensor.layout}): give {name}.to_dense()")

    def __len__(self) -> int:
        return len(self.y)

    def on(self, device: torch.device) -> Pool:
        """The same samples in that device's memory."""
        return Pool(self.x.to(device), self.y.to(device), self.mean, self.std)

    def take(self, index: Index | Tensor) -> tuple[Tensor, Tensor]:
        """The samples at `index`, ready for a model."""
        where = torch.as_tensor(index, device=self.y.device)
        x = self.x.index_select(0, where)
        if x.dtype == torch.uint8:
            x = x.to(torch.get_default_dtype()).div_(255)
        return normalised(x, self.mean, self.std), self.y.index_select(0, where)


@dataclass(frozen=True)
class Search:
    """Of a test pool that is searched: its first samples are looked for among the others."""

    queries: int
    cameras: Index  # [N] which camera took each


@dataclass(frozen=True)
class Dataset:
    """What a loader returns: a train and a test pool, and what is known about the samples."""

    name: str
    train: Pool
    test: Pool
    classes: tuple[str, ...]
    train_domains: Index | None = None  # [N] domain of each train sample (PACS)
    test_domains: Index | None = None
    train_clients: Index | None = None  # [N] natural client ids, 0..K-1
    test_clients: Index | None = None
    client_names: tuple[str, ...] = ()  # of the natural clients, where they have names
    note: str = ""  # printed beside every result, e.g. "32 x 32, recompressed copy"
    problem: str = "classification"  # an entry of `accord.problems`; `classes` are the names of its outputs
    fields: Fields | None = None  # where a sample is several inputs: how they are packed into one
    raw: Inputs | None = None  # where the pools do not say how a raw sample becomes theirs: a table's columns
    search: Search | None = None  # where the test pool is one of re-identification

    @property
    def inputs(self) -> Inputs:
        """How a raw sample becomes what a network sees."""
        return self.raw or Inputs.of(self.train.x, self.train.mean, self.train.std)

    @property
    def num_classes(self) -> int:
        """How many classes there are, present in the data or not."""
        return len(self.classes)


@dataclass(frozen=True)
class Groups:
    """K ragged index lists in two flat arrays: client k holds `order[offsets[k]:offsets[k + 1]]`."""

    order: Index
    offsets: Index

    @classmethod
    def of(cls, lists: Iterable[npt.ArrayLike]) -> Groups:
        """Pack one index list per client."""
        arrays = [np.asarray(rows, dtype=np.int64).reshape(-1) for rows in lists]
        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(a) for a in arrays], out=offsets[1:])
        return cls(np.concatenate(arrays) if arrays else np.zeros(0, np.int64), offsets)

    @classmethod
    def by_id(cls, ids: Index, clients: int) -> Groups:
        """Group positions by a client id per sample; order within a client is kept."""
        counts = np.bincount(ids, minlength=clients)
        return cls(np.argsort(ids, kind="stable").astype(np.int64), np.concatenate([[0], np.cumsum(counts)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Index:
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    @cached_property
    def sizes(self) -> Index:
        """[K] samples per client. Asked for in every round, so a million clients are counted once."""
        return np.diff(self.offsets)


class ClientTransform(Protocol):
    """A fixed change of a client's inputs (its rotation, its pixel permutation); deterministic in its arguments."""

    def __call__(self, client: int, index: Index, x: Tensor) -> Tensor:
        """Inputs `x` of `client`, found at pool positions `index`, changed."""
        ...


@dataclass(frozen=True)
class Environment:
    """The whole test pool under one change of its inputs; global accuracy is the mean over environments."""

    name: str
    change: Callable[[Tensor], Tensor]


def unchanged(x: Tensor) -> Tensor:
    """The identity, the usual single test environment."""
    return x


Split = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class FederatedData:
    """A data set divided among clients."""

    name: str
    train_pool: Pool
    test_pool: Pool
    num_classes: int
    train: Groups  # positions in train_pool
    validation: Groups  # positions in train_pool; empty lists where nothing is held out
    test: Groups  # positions in the pool named by test_from
    test_from: Literal["train", "test"] = "test"
    transform: ClientTransform | None = None
    environments: Sequence[Environment] = (Environment("test", unchanged),)
    unseen: frozenset[int] = field(default_factory=frozenset)  # clients never asked to train
    classes: tuple[str, ...] = ()  # names, where they are known
    names: tuple[str, ...] = ()  # of the clients, where they have any
    note: str = ""
    problem: str = "classification"  # an entry of `accord.problems`
    fields: Fields | None = None  # where a sample is several inputs: how they are packed into one
    raw: Inputs | None = None  # see Dataset
    search: Search | None = None  # see Dataset
    division: str = ""  # the partition's name, where one was used

    def __post_init__(self) -> None:
        if not len(self.train) == len(self.validation) == len(self.test):
            raise DataError(
                f"train, validation and test must list the same clients; got {len(self.train)}, "
                f"{len(self.validation)} and {len(self.test)}"
            )
        if self.names and len(self.names) != len(self.train):
            raise DataError(f"{len(self.train)} clients have {len(self.names)} names; give one for each, or none")

    def __len__(self) -> int:
        return len(self.train)

    @property
    def sizes(self) -> Index:
        """[K] training samples per client."""
        return self.train.sizes

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train_pool.x.shape[1:])

    @property
    def inputs(self) -> Inputs:
        """How a raw sample becomes what a network sees, before any transform of a client's."""
        return self.raw or Inputs.of(self.train_pool.x, self.train_pool.mean, self.train_pool.std)

    def name_of(self, client: int) -> str:
        """The client's name; where clients have none, its number."""
        return self.names[client] if self.names else str(client)

    @property
    def facts(self) -> Facts:
        """What may be known without the samples."""
        return Facts(
            self.sample_shape,
            self.num_classes,
            self.sizes,
            self.unseen,
            problem=self.problem,
            vocabulary=self.vocabulary,
            fields=self.fields,
        )

    @cached_property
    def vocabulary(self) -> int:
        """Token ids there are: one more than the largest; 0 where inputs are no whole numbers."""
        pools = (self.train_pool, self.test_pool)
        if self.fields is not None or any(pool.x.dtype != torch.int64 for pool in pools):
            return 0
        return max(int(pool.x.max()) + 1 for pool in pools if len(pool))

    def on(self, device: torch.device) -> FederatedData:
        """The same federation with its samples in that device's memory."""
        return replace(self, train_pool=self.train_pool.on(device), test_pool=self.test_pool.on(device))

    def client(self, client: int, split: Split = "train") -> tuple[Tensor, Tensor]:
        """Inputs and labels of one client, its transform applied."""
        groups = {"train": self.train, "validation": self.validation, "test": self.test}[split]
        pool = self.test_pool if split == "test" and self.test_from == "test" else self.train_pool
        index = groups[client]
        x, y = pool.take(index)
        return (x if self.transform is None else self.transform(client, index, x)), y
