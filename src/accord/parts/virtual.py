"""Virtual samples: labelled noise with the look of images, made from a seed by networks that were never trained.

N samples, C classes. Every class has a centre among the latents; random convolutions and upsampling turn latents into
images, random dense layers into anything that is no image. Samples are standardised, and the same on every machine
that is given the same seed.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accord.core.tensors import Tree
from accord.parts.frozen import in_chunks
from accord.parts.mlp import mlp

CHANNELS, SIDE, LAYERS = 16, 4, 3  # of the latents, and how often they are doubled
SPREAD = 0.5  # of latents around their class's centre


@lru_cache(maxsize=2)
def virtual_set(
    seed: int, count: int, classes: int, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """[N, ...] samples and [N] labels, all classes equally often; remembered, so only to be read."""
    rng = np.random.Generator(np.random.Philox(seed))
    labels = torch.arange(count) % classes
    centres = _normal(rng, (classes, CHANNELS, SIDE, SIDE), dtype)
    latents = centres[labels] + SPREAD * _normal(rng, (count, CHANNELS, SIDE, SIDE), dtype)
    with torch.no_grad():
        made = _images(rng, latents, shape) if len(shape) == 3 else _vectors(rng, latents.flatten(1), shape)
        made = (made - made.mean()) / made.std().clamp(min=1e-6)
    return made, labels


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def _images(rng: np.random.Generator, latents: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Convolve, bend, double; then to the wanted size and channels."""
    kernels = [
        _normal(rng, (CHANNELS, CHANNELS, 3, 3), latents.dtype) * (2 / (9 * CHANNELS)) ** 0.5 for _ in range(LAYERS)
    ]
    paint = _normal(rng, (shape[0], CHANNELS, 1, 1), latents.dtype)

    def render(z: Tensor) -> Tensor:
        for kernel in kernels:
            z = functional.leaky_relu(functional.conv2d(z, kernel, padding=1), 0.2)
            z = functional.interpolate(z, scale_factor=2, mode="bilinear")
        return functional.conv2d(functional.interpolate(z, size=shape[1:], mode="bilinear"), paint)

    return in_chunks(render, latents)


def _vectors(rng: np.random.Generator, latents: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Two random dense layers."""
    inside, outside, hidden = latents.shape[1], int(np.prod(shape)), 128
    layers: Tree = {}
    for layer, (inputs, outputs) in enumerate(((inside, hidden), (hidden, outside))):
        layers[f"{layer}.weight"] = _normal(rng, (outputs, inputs), latents.dtype) * (2 / inputs) ** 0.5
        layers[f"{layer}.bias"] = latents.new_zeros(outputs)
    return in_chunks(lambda z: mlp(layers, z), latents).reshape(len(latents), *shape)
