"""Clients' samples on the device, where steps gather their batches by row number.

All of them lie there for the whole run if they fit; otherwise only those of the clients being trained, in a buffer
with room for the largest block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.client import Site
from accord.core.types import ClientData
from accord.executors.gpu.lane import Rows

CHUNK = 4096  # samples prepared at a time: a pool of bytes is never held as floats twice


class OnDemand:
    """A client's samples, gathered when something asks for them: most tasks only look at their batches."""

    def __init__(self, num_classes: int, has_test: bool, gather: Callable[[], ClientData]) -> None:
        self.num_classes, self.has_test = num_classes, has_test
        self._gather = gather
        self._found: ClientData | None = None

    @property
    def touched(self) -> bool:
        """Whether anything asked."""
        return self._found is not None

    def __getattr__(self, name: str) -> Any:
        if self._found is None:
            self._found = self._gather()
        return getattr(self._found, name)


class Samples:
    """`x` and `y` hold samples at fixed addresses; `rows` says which are a client's."""

    def __init__(self, site: Site, budget: int) -> None:
        self.site = site
        data = site.data
        self.num_classes = data.num_classes
        shape, dtype = data.sample_shape, self._dtype()
        row_bytes = int(np.prod(shape)) * dtype.itemsize + 8
        self._per_client = data.transform is not None
        self._count = len(data.train.order) if self._per_client else len(data.train_pool)
        self.whole = self._count * row_bytes <= budget
        self._placed: dict[int, Rows] = {}
        if self.whole:
            self._make_room(self._count)
            self._fill()
        else:
            self._make_room(0)

    def rows(self, client: int) -> Rows:
        """Where a client's samples lie, in its own order."""
        groups = self.site.data.train
        if not self.whole:
            return self._placed[client]
        if self._per_client:
            return np.arange(groups.offsets[client], groups.offsets[client + 1])
        return groups[client]

    def bring(self, clients: Sequence[int], at_once: int) -> bool:
        """Have these clients' samples on the device; whether that moved the buffers."""
        if self.whole:
            return False
        sizes = self.site.data.sizes
        room = int(np.sort(sizes)[-at_once:].sum())
        moved = room > len(self.y)
        if moved:
            self._make_room(room)
        start = 0
        self._placed = {}
        for client in clients:
            end = start + int(sizes[client])
            self._put(start, *self.site.data.client(client))
            self._placed[client] = np.arange(start, end)
            start = end
        return moved

    def client(self, client: int) -> ClientData:
        """A client's samples; looks like `ClientData`."""
        data = self.site.data
        has_test = self.site.with_test and len(data.test[client]) > 0
        lazy: Any = OnDemand(self.num_classes, has_test, lambda: self._gather(client))
        samples: ClientData = lazy
        return samples

    def _gather(self, client: int) -> ClientData:
        where = torch.from_numpy(np.ascontiguousarray(self.rows(client))).to(self.x.device)
        x, y = self.x.index_select(0, where), self.y.index_select(0, where)
        test_x, test_y = x[:0], y[:0]
        if self.site.with_test:
            test_x, test_y = (t.to(self.x.device) for t in self.site.data.client(client, "test"))
        return ClientData(x, y, test_x, test_y, self.num_classes)

    def _dtype(self) -> torch.dtype:
        x, _ = self.site.data.train_pool.take(np.zeros(0, np.int64))
        return x.dtype

    def _make_room(self, count: int) -> None:
        shape, device = self.site.data.sample_shape, self.site.device
        self.x: Tensor = torch.zeros((count, *shape), dtype=self._dtype(), device=device)
        like = self.site.data.train_pool.y
        self.y: Tensor = torch.zeros((count, *like.shape[1:]), dtype=like.dtype, device=device)

    def _put(self, start: int, x: Tensor, y: Tensor) -> None:
        self.x[start : start + len(y)] = x.to(self.x.device)
        self.y[start : start + len(y)] = y.to(self.y.device)

    def _fill(self) -> None:
        data = self.site.data
        if self._per_client:
            for client in range(len(data)):
                self._put(int(data.train.offsets[client]), *data.client(client))
            return
        for start in range(0, self._count, CHUNK):
            self._put(start, *data.train_pool.take(np.arange(start, min(start + CHUNK, self._count))))
