"""Images turned by an angle of the client, or each by its own."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accord.data.dealing import dirichlet_draw
from accord.data.federated import Dataset, Environment, Index
from accord.data.streams import per_image, stream
from accord.data.transforms.registry import TRANSFORMS, Change, black
from accord.settings import Range


@functools.lru_cache(maxsize=256)
def rotation_source(angle: float, height: int, width: int) -> Index:
    """[H * W] the pixel that comes to each place when an image is turned counter-clockwise; -1 from outside.

    Nearest neighbour about the centre, found in double precision by sampling an image of pixel numbers.
    """
    turn = math.radians(angle % 360)
    cos, sin = math.cos(turn), math.sin(turn)
    # Rows point down and grid coordinates are scaled by the side length, hence signs and ratios.
    rows = [[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]]
    theta = torch.tensor([rows], dtype=torch.float64, device="cpu")
    grid = torch.nn.functional.affine_grid(theta, [1, 1, height, width], align_corners=False)
    numbers = torch.arange(1, height * width + 1, dtype=torch.float64, device="cpu").view(1, 1, height, width)
    moved = torch.nn.functional.grid_sample(numbers, grid, "nearest", "zeros", align_corners=False)
    return moved.flatten().numpy().astype(np.int64) - 1


def rotated(x: Tensor, angle: float, fill: tuple[float, ...] = ()) -> Tensor:
    """Images [B, C, H, W] turned counter-clockwise by `angle` degrees.

    Pixels from outside become `fill`, one number per channel (default 0); 0 degrees returns `x` itself.
    """
    if angle % 360 == 0 or not len(x):
        return x
    height, width = x.shape[-2:]
    source = torch.as_tensor(rotation_source(float(angle), height, width), device=x.device)
    turned = x.flatten(2).index_select(2, source.clamp(min=0))
    outside = x.new_tensor(fill or (0.0,)).view(1, -1, 1)
    return torch.where(source < 0, outside, turned).view(x.shape)


@dataclass(frozen=True)
class Rotate:
    """Client i turned by `angles[i mod A]`, or each image by an angle from the client's own distribution.

    The draw of an image depends on (seed, client, pool position) alone, so it is the same in every epoch and
    batch.
    """

    angles: tuple[float, ...]
    fill: tuple[float, ...] = ()
    per: Literal["client", "image"] = "client"
    concentration: float = 1.0
    seed: int = 0

    def __call__(self, client: int, index: Index, x: Tensor) -> Tensor:
        """Inputs of a client, turned."""
        if self.per == "client":
            return rotated(x, self.angles[client % len(self.angles)], self.fill)
        chosen = self.choice(client, index)
        result = x.clone()
        for angle in np.unique(chosen):
            rows = torch.as_tensor(np.flatnonzero(chosen == angle), device=x.device)
            result[rows] = rotated(x[rows], self.angles[angle], self.fill)
        return result

    def shares(self, client: int) -> npt.NDArray[np.float64]:
        """[A] how likely each angle is for an image of this client."""
        flat = np.full(len(self.angles), self.concentration)
        return dirichlet_draw(flat, stream(self.seed, "rotate", client))

    def choice(self, client: int, index: Index) -> Index:
        """The number of the angle of each image at pool positions `index`."""
        uniform = per_image(self.seed, "rotate image", client, index)
        chosen = np.searchsorted(np.cumsum(self.shares(client)), uniform, side="right")
        return np.minimum(chosen, len(self.angles) - 1).astype(np.int64)


@TRANSFORMS.add("rotate")
def rotate(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    step: Annotated[float, Range(low=-360, high=360), "degrees between two angles, counter-clockwise"] = 15.0,
    count: Annotated[int, Range(low=1, high=360), "number of angles: 0, step, 2 step, ..."] = 10,
    per: Annotated[Literal["client", "image"], "client: i-th angle for client i; image: drawn per image"] = "client",
    concentration: Annotated[
        float, Range(low=1e-6, high=1e9), "per image: the client's angle shares ~ Dir(concentration)"
    ] = 1.0,
) -> Change:
    """Rotated images (RotatedMNIST and CIFAR-10 of FedBR); a test environment per angle over the test pool.

    Corners that come from outside the image are black: as inputs arrive normalised, they are filled with
    (0 - mean) / std of their channel, what a black pixel becomes.
    """
    fill = black(dataset, "rotate")
    angles = tuple(step * i + 0.0 for i in range(count))  # 0 and never -0, which would be seen in a name
    environments = [
        Environment(f"rotated by {angle:g}", functools.partial(rotated, angle=angle, fill=fill)) for angle in angles
    ]
    return Change(Rotate(angles, fill, per, concentration, seed), environments)
