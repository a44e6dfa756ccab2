"""Data sets from NumPy arrays, tensors, data frames or nested lists, and from any PyTorch data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from accord.core.fields import Fields
from accord.data.federated import Dataset, Index, Pool
from accord.data.own.conversion import inputs
from accord.data.own.packing import Values, fields_of, values_of
from accord.data.own.samples import stacked
from accord.data.own.sites import Sites, numbered, site_ids
from accord.data.own.targets import output_names, strata, targets
from accord.data.splits import stratified
from accord.errors import DataError

Moments = tuple[tuple[float, ...], tuple[float, ...]]


def from_arrays(
    x: Any,
    y: Any,
    clients: Any = None,
    test: Sequence[Any] | None = None,
    classes: int | Sequence[str] | None = None,
    name: str = "own",
    *,
    task: str = "auto",
    normalise: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from inputs [N, ...], labels [N] and, if samples belong to clients, a client id per sample.

    Bytes are taken for pixels (divided by 255 on use; images are [N, channels, height, width] or, grey,
    [N, height, width]), other whole numbers for token ids, floating-point numbers as they are.

    Args:
        x: inputs, an array, a tensor, a data frame or nested lists; copied. Or several of them by name, which your
            network is given as arguments of these names: {"age": [N], "image": [N, 1, 28, 28]}.
        y: labels 0..C-1; or as the task wants them.
        clients: ids, whole numbers or strings (an array, a data frame's column, a list); clients are numbered 0..K-1
            in the sorted order of their ids, and keep them as their names.
        test: `(x, y)` or `(x, y, clients)`; if not given, `test_fraction` is set aside, drawn with `seed`.
        classes: the number of classes or their names; if not given, the largest label decides. Of a regression the
            names of its numbers, with several labels theirs.
        name: what results call the data set.
        task: classification, multilabel (y [N, C] of 0 and 1), regression (y [N] or [N, D] of real numbers) or tokens
            (y [N, L], -100 for no label); auto: what y looks like.
        normalise: subtract the train part's mean and divide by its standard deviation, for each index of the
            axis after the samples (channel or feature).
        test_fraction: share set aside when there is no `test`.
        seed: seed of that split.
    """
    train = _part(x, y, task, "")
    if test is None and train.values:
        train = train.packed(fields_of([train.values]))
    owners = None if clients is None else site_ids(clients, len(train.y))
    if test is None:
        names = output_names(classes, train.task, {"y": train.y})
        sites = None if owners is None else numbered(owners)
        ids = None if sites is None else sites.train
        rng, groups = np.random.default_rng(seed), strata(train.y, train.task)
        kept, aside = (
            stratified(groups, test_fraction, rng)
            if ids is None
            else stratified(ids, test_fraction, rng, spread=groups)
        )
        whole = replace(train, clients=ids)
        return _dataset(name, whole.rows(kept), whole.rows(aside), names, normalise, sites)
    if not isinstance(test, tuple | list) or len(test) not in (2, 3):
        raise DataError("test must be (x, y) or (x, y, clients)")
    other = _part(test[0], test[1], train.task, "test ")
    if train.values or other.values:
        fields = fields_of([train.values, other.values])
        train, other = train.packed(fields), other.packed(fields)
    if other.x.shape[1:] != train.x.shape[1:] or other.x.dtype != train.x.dtype:
        raise DataError(
            f"train samples are {tuple(train.x.shape[1:])} {train.x.dtype}, test samples "
            f"{tuple(other.x.shape[1:])} {other.x.dtype}; they must be alike"
        )
    names = output_names(classes, train.task, {"y": train.y, "test y": other.y})
    visitors = None
    if len(test) == 3 and test[2] is not None:
        if owners is None:
            raise DataError("test has client ids but train has none; give both, or only those of train")
        visitors = site_ids(test[2], len(other.y), "test clients")
    sites = None if owners is None else numbered(owners, visitors)
    first = replace(train, clients=None if sites is None else sites.train)
    second = replace(other, clients=None if sites is None else sites.test)
    return _dataset(name, first, second, names, normalise, sites)


def from_torch(
    train: Iterable[Any] | torch.utils.data.Dataset[Any],
    test: Iterable[Any] | torch.utils.data.Dataset[Any] | None = None,
    clients: Any = None,
    test_clients: Any = None,
    classes: int | Sequence[str] | None = None,
    name: str = "own",
    *,
    task: str = "auto",
    normalise: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from PyTorch data sets of `(x, y)` pairs, each read once into memory; see `from_arrays`.

    Inputs may be tensors, arrays or PIL images. They are read once, so random transforms would be frozen:
    leave them out. Class names that are not given come from the attribute `classes`, where there is one.
    """
    if test is None and test_clients is not None:
        raise DataError("test_clients was given without test; give the test data set too")
    if classes is None:
        names = getattr(train, "classes", None)
        classes = list(names) if isinstance(names, list | tuple) and names else None
    x, y = _pairs(train, "train")
    other = None if test is None else (*_pairs(test, "test"), test_clients)
    return from_arrays(
        x,
        y,
        clients,
        other,
        classes,
        name,
        task=task,
        normalise=normalise,
        test_fraction=test_fraction,
        seed=seed,
    )


@dataclass(frozen=True)
class _Part:
    x: Tensor  # empty while the samples are several inputs
    y: Tensor
    task: str
    values: Values  # those inputs, by name
    clients: Index | None = None
    fields: Fields | None = None  # what a row of `x` holds, once they are packed

    def rows(self, index: Index) -> _Part:
        where = torch.from_numpy(index)
        clients = None if self.clients is None else self.clients[index]
        values = {name: value[where] for name, value in self.values.items()}
        return replace(self, x=self.x[where], y=self.y[where], values=values, clients=clients)

    def packed(self, fields: Fields) -> _Part:
        return replace(self, x=fields.packed(self.values), fields=fields)

    def moments(self) -> Moments:
        """Of every channel or feature; of several inputs each number by itself, token ids left alone."""
        if self.fields is None:
            return _moments(self.x)
        means: list[float] = []
        deviations: list[float] = []
        for field in self.fields.fields:
            values = self.values[field.name].reshape(len(self.y), -1)
            mean, std = ([0.0] * field.size, [1.0] * field.size) if field.vocabulary else _moments(values)
            means += mean
            deviations += std
        return tuple(means), tuple(deviations)


def _part(x: Any, y: Any, task: str, prefix: str) -> _Part:
    several = values_of(x, f"{prefix}x") if isinstance(x, Mapping) else {}
    tensor = next(iter(several.values())) if several else inputs(x, f"{prefix}x")
    found = targets(y, len(tensor), task, f"{prefix}y")
    return _Part(tensor, found.y, found.task, several)


def _dataset(
    name: str, train: _Part, test: _Part, classes: tuple[str, ...], normalise: bool, sites: Sites | None
) -> Dataset:
    mean, std = train.moments() if normalise else ((), ())
    pools = (Pool(part.x, part.y, mean, std) for part in (train, test))
    return Dataset(
        name,
        next(pools),
        next(pools),
        classes,
        train_clients=train.clients,
        test_clients=test.clients,
        client_names=() if sites is None else sites.names,
        problem=train.task,
        fields=train.fields,
    )


def _moments(x: Tensor) -> Moments:
    """Mean and standard deviation over all axes but the second, in blocks so that bytes stay bytes."""
    if x.dtype == torch.int64:
        raise DataError("normalise needs pixels (bytes) or floating-point inputs; whole numbers are token ids")
    scale = 255.0 if x.dtype == torch.uint8 else 1.0
    axes = [axis for axis in range(x.dim()) if axis != 1]
    blocks = [x[start : start + 4096] for start in range(0, len(x), 4096)]  # views, not copies
    count = x.numel() / x.shape[1]
    mean = torch.stack([(block.double() / scale).sum(axes) for block in blocks]).sum(0) / count
    shape = (1, -1) + (1,) * (x.dim() - 2)
    squares = [(block.double() / scale - mean.view(shape)).square().sum(axes) for block in blocks]
    std = (torch.stack(squares).sum(0) / count).sqrt()
    # a constant feature becomes zero, not NaN; rounding may leave it a deviation of 1e-17, hence the look at its edges
    low, high = (torch.stack([edge(block, axes) for block in blocks]) for edge in (torch.amin, torch.amax))
    varies = (low.amin(0) < high.amax(0)) & (std > 0)
    std = torch.where(varies, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


def _pairs(dataset: Any, what: str) -> tuple[Any, Any]:
    if isinstance(dataset, DataLoader):
        raise DataError(f"{what} is a DataLoader; give the data set itself: loader.dataset")
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[0], dataset.tensors[1]
    # by index where possible: many data sets answer any index and would never end an iteration
    sized = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    samples, targets = [], []
    for place, item in enumerate((dataset[i] for i in range(len(dataset))) if sized else iter(dataset)):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"{what}: sample {place} is a {type(item).__name__}, expected a pair (x, y)")
        samples.append(item[0])
        targets.append(item[1])
    return stacked(samples, what), stacked(targets, f"{what} labels")
