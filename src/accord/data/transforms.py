"""Fixed changes of a client's inputs (rotated, permuted, cropped images) and their test environments.

All of them move pixels without computing new values, so they are exact in any number type and on any device.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accord.data.federated import ClientTransform, Dataset, Environment, Index, unchanged
from accord.data.partition_checks import check_clients, check_settings
from accord.data.partition_core import dirichlet_draw
from accord.errors import ConfigError, DataError
from accord.settings import AtLeast, Range, Registry


@dataclass(frozen=True)
class Change:
    """What a transform factory returns: the change of each client's inputs and the test environments."""

    transform: ClientTransform | None
    environments: Sequence[Environment]


Factory = Callable[..., Change]
TRANSFORMS: Registry[Factory] = Registry("transform")


def client_rng(seed: int, purpose: str, client: int) -> np.random.Generator:
    """The random stream of one client for one purpose."""
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), client]))


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
        return dirichlet_draw(flat, client_rng(self.seed, "rotate", client))

    def choice(self, client: int, index: Index) -> Index:
        """The number of the angle of each image at pool positions `index`."""
        uniform = per_image(self.seed, "rotate image", client, index)
        chosen = np.searchsorted(np.cumsum(self.shares(client)), uniform, side="right")
        return np.minimum(chosen, len(self.angles) - 1).astype(np.int64)


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


def per_image(seed: int, purpose: str, client: int, index: Index) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each image of a client, fixed by its pool position.

    Positions are mixed by the SplitMix64 function: as good as random draws here, and in any order.
    """
    start = client_rng(seed, purpose, client).integers(0, 2**64, dtype=np.uint64)
    z = (np.asarray(index, dtype=np.uint64) + start) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.asarray((z >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


@dataclass(frozen=True)
class Permute:
    """Every client sees the pixels in its own fixed random order, the same for all channels."""

    seed: int = 0
    keep_first: bool = False

    def __call__(self, client: int, index: Index, x: Tensor) -> Tensor:
        """Inputs of a client, pixels permuted."""
        return self.apply(client, x)

    def order(self, client: int, pixels: int) -> Index:
        """[pixels] the pixel that comes to each place."""
        if client == 0 and self.keep_first:
            return np.arange(pixels, dtype=np.int64)
        return client_rng(self.seed, "permute", client).permutation(np.arange(pixels, dtype=np.int64))

    def apply(self, client: int, x: Tensor) -> Tensor:
        """Any inputs in this client's order: [B, C, H, W] within each channel, [B, F] over all features."""
        if not len(x):
            return x
        flat = x.flatten(2) if x.dim() > 2 else x
        order = torch.as_tensor(self.order(client, flat.shape[-1]), device=x.device)
        return flat.index_select(-1, order).view(x.shape)


def black(dataset: Dataset, name: str) -> tuple[float, ...]:
    """What a black pixel becomes in each channel, (0 - mean) / std; refuses samples that are no images."""
    pool = dataset.train
    if pool.x.dim() != 4:
        raise ConfigError(
            f"the transform {name!r} needs images [N, C, H, W], but samples of {dataset.name!r} have shape "
            f"{tuple(pool.x.shape[1:])}; use transform = 'none' or 'permute'"
        )
    if len(pool.mean) != len(pool.std) or 0 in pool.std:
        raise DataError(f"data set {dataset.name!r} cannot be normalised with mean {pool.mean}, std {pool.std}")
    return tuple(-mean / std for mean, std in zip(pool.mean, pool.std, strict=True))


@TRANSFORMS.add("none")
def none(dataset: Dataset, clients: int, seed: int) -> Change:
    """Inputs as they are; one test environment, the test pool."""
    return Change(None, (Environment("test", unchanged),))


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
    angles = tuple(step * i for i in range(count))
    environments = [
        Environment(f"rotated by {angle:g}", functools.partial(rotated, angle=angle, fill=fill)) for angle in angles
    ]
    return Change(Rotate(angles, fill, per, concentration, seed), environments)


@TRANSFORMS.add("permute")
def permute(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    keep_first: Annotated[bool, "leave the pixels of client 0 in place"] = False,
    environments: Annotated[int, AtLeast(1), "test environments: the orders of the first so many clients"] = 10,
) -> Change:
    """Permuted pixels (permuted MNIST of FedFusion); a test environment per client, up to `environments`."""
    if dataset.train.x.dim() < 2:
        raise ConfigError(f"the transform 'permute' needs inputs with features; {dataset.name!r} has single numbers")
    change = Permute(seed, keep_first)
    shown = range(min(clients, environments))
    return Change(change, [Environment(f"client {i}", functools.partial(change.apply, i)) for i in shown])


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


def make_transform(
    name: str, dataset: Dataset, clients: int, seed: int = 0, settings: Mapping[str, object] | None = None
) -> Change:
    """The transform of this name with its test environments, settings checked."""
    factory = TRANSFORMS[name]
    check_settings(f"transform {name!r}", factory, settings or {})
    return factory(dataset, check_clients(clients), seed, **(settings or {}))
