"""Images cropped and mirrored once, before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from accord.data.federated import Dataset, Environment, Index, unchanged
from accord.data.streams import per_image
from accord.data.transforms.registry import TRANSFORMS, Change, black
from accord.settings import Range


@dataclass(frozen=True)
class CropFlip:
    """Each image cropped from a padded copy at a place of its own, and mirrored or not, once and for all."""

    padding: int = 4
    fill: tuple[float, ...] = ()
    seed: int = 0

    def __call__(self, client: int, index: Index, x: Tensor) -> Tensor:
        """Inputs of a client, cropped and mirrored."""
        if not len(x):
            return x
        height, width = x.shape[-2:]
        places = 2 * self.padding + 1
        chosen = np.floor(per_image(self.seed, "crop", client, index) * (2 * places**2)).astype(np.int64)
        down, across, mirror = chosen // 2 // places, chosen // 2 % places, chosen % 2 == 1
        rows = np.arange(height) + down[:, None] - self.padding  # [B, H] of the image without padding
        columns = np.arange(width) + across[:, None] - self.padding  # [B, W]
        columns = np.where(mirror[:, None], columns[:, ::-1], columns)
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        source = np.where(inside, rows[:, :, None] * width + columns[:, None, :], 0).reshape(len(x), 1, -1)
        where = torch.as_tensor(source, device=x.device).expand(-1, x.shape[1], -1)
        seen = torch.as_tensor(inside.reshape(len(x), 1, -1), device=x.device)
        outside = x.new_tensor(self.fill or (0.0,)).view(1, -1, 1)
        return torch.where(seen, x.flatten(2).gather(2, where), outside).view(x.shape)


@TRANSFORMS.add("crop_flip")
def crop_flip(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    padding: Annotated[int, Range(low=0, high=64), "black pixels added on each side before cropping"] = 4,
) -> Change:
    """Images cropped at random and mirrored once, before training (CIFAR-100 of FedBR); test as it is."""
    return Change(CropFlip(padding, black(dataset, "crop_flip"), seed), (Environment("test", unchanged),))
