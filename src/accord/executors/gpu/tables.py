"""A block's batches on the device, laid out before its first step; a counter there says which row is next.

S steps, K lanes, B samples in a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.client import as_tensor
from accord.core.types import Batch
from accord.executors.gpu.lane import Client, Draws, Rows


class Tables:
    """What every step of every lane sees.

    `numbers` [S, 3, K, B] holds rows of the data, positions in the client's own and labels, so that one kernel looks
    all three up; weights and noise are [S, K, ...]. Labels that are no single whole numbers are looked up by the rows,
    as inputs are.
    """

    def __init__(self, lanes: int, width: int, device: torch.device) -> None:
        self.lanes, self.width, self.device = lanes, width, device
        self.steps = 0
        self.numbers = self.weight = torch.zeros(0, device=device)
        self.noise: dict[str, Tensor] = {}
        self.labels: Tensor | None = None
        self.next = torch.zeros(1, dtype=torch.int64, device=device)

    def fill(self, clients: Sequence[Client], rows: Sequence[Rows], y: Tensor) -> bool:
        """Lay out a block's batches, first step next; whether a table had to move."""
        steps = max(len(client.batches) for client in clients)
        numbers = np.zeros((steps, 3, self.lanes, self.width), np.int64)
        where, index = numbers[:, 0], numbers[:, 1]
        weight = np.zeros(index.shape, np.float32)
        for lane, (client, places) in enumerate(zip(clients, rows, strict=True)):
            if client.batches:
                lengths = np.array([len(batch) for batch in client.batches])
                weight[: len(lengths), lane] = np.arange(self.width) < lengths[:, None]
                index[:, lane][weight[:, lane] > 0] = np.concatenate(client.batches)
            where[:, lane] = places[index[:, lane]]
        tables: Draws = {"numbers": numbers, "weight": weight}
        noise = {name: self._noise(name, clients, steps) for name in clients[0].draws}
        moved = steps > self.steps or any(noise[n].shape[1:] != t.shape[1:] for n, t in self.noise.items())
        if moved:  # room for half as many steps again, so that slightly longer blocks find it
            self.steps = steps + steps // 2
            for name, values in tables.items():
                setattr(self, name, self._room(values))
            self.noise = {name: self._room(values) for name, values in noise.items()}
        for name, values in tables.items():
            getattr(self, name)[:steps].copy_(torch.from_numpy(values))
        for name, values in noise.items():
            self.noise[name][:steps].copy_(torch.from_numpy(values))
        self.labels = None if y.dim() == 1 and not y.is_floating_point() else y
        if self.labels is None:
            self.numbers[:steps, 2] = y[self.numbers[:steps, 0]]
        self.next.zero_()
        return moved

    def batches(self, x: Tensor, lanes: int) -> Batch:
        """The next step of the first `lanes` lanes, gathered together: [K, B, ...]."""
        rows, index, labels = self.numbers.index_select(0, self.next)[0, :, :lanes]
        weight = self.weight.index_select(0, self.next)[0, :lanes]
        noise = {name: t.index_select(0, self.next)[0, :lanes] for name, t in self.noise.items()}
        all_x, all_y = _at(x, rows), labels if self.labels is None else _at(self.labels, rows)
        self.next.add_(1)
        return Batch(all_x, all_y, weight, index, noise)

    def _room(self, values: np.ndarray[Any, Any]) -> Tensor:
        like = as_tensor(values[:1], self.device)
        return like.new_zeros(self.steps, *like.shape[1:])

    def _noise(self, name: str, clients: Sequence[Client], steps: int) -> np.ndarray[Any, Any]:
        drawn = [client.draws[name] for client in clients]
        shape = np.max([d.shape[1:] for d in drawn], axis=0).astype(int) if drawn[0].ndim > 1 else ()
        table = np.zeros((steps, self.lanes, *shape), drawn[0].dtype)
        for lane, values in enumerate(drawn):
            corner: tuple[Any, ...] = (slice(len(values)), lane, *(slice(n) for n in values.shape[1:]))
            table[corner] = values
        return table


def _at(values: Tensor, rows: Tensor) -> Tensor:
    """[K, B, ...] the values at [K, B] rows."""
    return values.index_select(0, rows.reshape(-1)).view(*rows.shape, *values.shape[1:])
