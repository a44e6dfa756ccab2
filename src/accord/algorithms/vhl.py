"""VHL: virtual homogeneity learning; all clients also learn one set of labelled noise, and tie their classes to it.

Tang, Zhang, Shi, He, Han, Chu. "Virtual homogeneity learning: defending against data heterogeneity in federated
learning". ICML 2022, arXiv 2206.02465.

    (v, c) = virtual samples and labels, the same for everyone; u = output / |output|
    client k:  CE(x, y) + alpha CE(v, c) + contrast SupCon({(u(x), y)} and {(sg u(v), c)})
               + virtual_contrast SupCon({(u(v), c)})
    SupCon:    mean over rows i with a partner of  -mean_{p != i, same label} log(e_ip / sum_{a != i} e_ia),
               e_ij = exp(u_i u_j / tau)
    server:    as FedAvg

Sent: as FedAvg, and a seed of 8 bytes from which everyone makes the virtual set. Nothing of the clients' data.
Defaults: 2000 virtual samples (20000 for 100 classes in the paper), 32 of them in a step, alpha = 1 (FedBR; VHL's own
configuration: 0.5), contrast = 1, virtual_contrast = 0.1, tau = 0.07, outputs are features (`space` = "logits": FedBR).
Deviations: the noise comes from small untrained networks with upsampling (`virtual_set`) in place of an
untrained StyleGAN-v2: smooth patterns that differ by class, standardised. Virtual labels are the real classes
0..C-1, as in FedBR's code, not C extra ones, so that the model needs no larger head.
Choices: virtual samples run in a pass of their own, with batch norm's statistics of their own, and the running
statistics are those of real samples. Rows without a partner do not count. With all three weights 0 it is FedAvg.
Where another part mixes samples (Mixup), two rows are partners by what their labels share, y_i y_j instead of 1 or 0,
and a row counts by the sum of these, at most as 1. FedBR's code mixes the batch of CE(x, y) alone and contrasts the
batch as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import accord.authoring as fl
from accord.core.model import Out
from accord.core.tensors import clone
from accord.errors import DataError
from accord.models.around.heads import SHORTEST
from accord.parts.lookup import in_chunks
from accord.parts.mlp import mlp
from accord.parts.samples import share_of, soft_labels

CHANNELS, SIDE, LAYERS = 16, 4, 3  # of the latents, and how often they are doubled
SPREAD = 0.5  # of latents around their class's centre
Space = Literal["features", "logits"]


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
    layers: fl.Tree = {}
    for layer, (inputs, outputs) in enumerate(((inside, hidden), (hidden, outside))):
        layers[f"{layer}.weight"] = _normal(rng, (outputs, inputs), latents.dtype) * (2 / inputs) ** 0.5
        layers[f"{layer}.bias"] = latents.new_zeros(outputs)
    return in_chunks(lambda z: mlp(layers, z), latents).reshape(len(latents), *shape)


def supervised_contrast(rows: Tensor, labels: Tensor, weight: Tensor, tau: float) -> Tensor:
    """Supervised contrastive loss (Khosla et al. 2020) of the rows that count; those without a partner do not.

    Labels are classes [B], or soft ones [B, C], by which rows are partners in part.
    """
    unit = functional.normalize(rows, dim=1, eps=SHORTEST)
    alike = unit @ unit.mT / tau
    others = weight.expand(len(rows), -1) * (1 - torch.eye(len(rows), dtype=weight.dtype, device=weight.device))
    logs = alike - alike.masked_fill(others == 0, -torch.inf).logsumexp(1, keepdim=True)
    partners = others * (labels.unsqueeze(1) == labels if labels.dim() == 1 else labels @ labels.mT)
    count = partners.sum(1)
    each = -(partners * logs).sum(1) / torch.where(count > 0, count, 1.0)
    anchors = weight * count.clamp(max=1)
    return (each * anchors).sum() / anchors.sum().clamp(min=1)


@dataclass(frozen=True)
class VirtualHomogeneity(fl.Part):
    """The virtual set and its three terms."""

    needs = "classes for its virtual samples"
    mixes = True
    alpha: float
    contrast: float
    virtual_contrast: float
    tau: float
    count: int
    size: int
    space: Space

    @property
    def couples(self) -> bool:
        return self.contrast > 0

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        return {"virtual": {"seed": torch.tensor(world.key.number("virtual"), device=model.device)}}

    def send(self, state: fl.State) -> fl.Trees:
        return {"virtual": state["virtual"]}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """Which virtual samples each step sees."""
        return {"vhl.pick": rng.random((steps, self.size))}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """The virtual set, and running statistics that are thrown away."""
        data = job.data
        if not data.x.is_floating_point():
            raise DataError(f"virtual samples take the place of real numbers, but these inputs are {data.x.dtype}")
        seed = int(job.shared["virtual"]["seed"])
        x, y = virtual_set(seed, self.count, data.num_classes, tuple(data.x.shape[1:]), data.x.dtype)
        return {"x": x.to(data.x.device), "y": y.to(data.y.device), "buffers": clone(job.shared["buffers"])}

    def loss(self, view: fl.View) -> fl.Term:
        """Of the terms those with a weight."""
        corner, batch = view.carry[self.name], view.batch
        rows = share_of(batch.noise["vhl.pick"], self.count)
        x, y = corner["x"][rows], corner["y"][rows]
        out = view.model.train(view.params["model"], corner["buffers"], x)
        virtual, ones = self._compared(out), batch.weight.new_ones(len(y))
        terms: list[Tensor] = []
        if self.alpha:
            terms.append(self.alpha * functional.cross_entropy(out.logits, y))
        if self.contrast:
            both = torch.cat([self._compared(view.out), virtual.detach()])
            named = y if batch.y.dim() == 1 else soft_labels(y, batch.y.shape[1], batch.y)
            labels, weight = torch.cat([batch.y, named]), torch.cat([batch.weight, ones])
            terms.append(self.contrast * supervised_contrast(both, labels, weight, self.tau))
        if self.virtual_contrast:
            terms.append(self.virtual_contrast * supervised_contrast(virtual, y, ones, self.tau))
        return view.whole(torch.stack(terms).sum())

    def _compared(self, out: Out) -> Tensor:
        return out.features if self.space == "features" else out.logits


@fl.method("data", part=("alpha", "contrast", "virtual_contrast", "tau", "count", "size", "space"))
def vhl(
    setup: fl.Setup,
    *,
    alpha: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.1, 0.5, 1.0)), "weight of the virtual labels"] = 1.0,
    contrast: Annotated[float, fl.AtLeast(0), fl.Search(0.1, 2.0), "weight of real with virtual samples"] = 1.0,
    virtual_contrast: Annotated[float, fl.AtLeast(0), "weight of virtual samples among themselves"] = 0.1,
    tau: Annotated[float, fl.Range(above=0), fl.Search(0.05, 0.5, log=True), "temperature of the contrast"] = 0.07,
    count: Annotated[int, fl.AtLeast(2), "virtual samples in all"] = 2000,
    size: Annotated[int, fl.AtLeast(2), "virtual samples in a step"] = 32,
    space: Annotated[Space, "what is contrasted"] = "features",
) -> fl.Method:
    """Average models that share virtual samples."""
    if count < setup.num_classes:
        raise fl.ConfigError(
            f"algorithm vhl: count = {count} virtual samples cannot show all {setup.num_classes} classes; "
            "raise algorithm.count"
        )
    if alpha == contrast == virtual_contrast == 0:
        return fl.averaging(setup, fl.Part())  # one that does nothing
    part = VirtualHomogeneity(alpha, contrast, virtual_contrast, tau, count, size, space)
    return fl.averaging(setup, part)
