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
Deviations: the noise comes from small untrained networks with upsampling (`accord.parts.virtual`) in place of an
untrained StyleGAN-v2: smooth patterns that differ by class, standardised. Virtual labels are the real classes
0..C-1, as in FedBR's code, not C extra ones, so that the model needs no larger head.
Choices: virtual samples run in a pass of their own, with batch norm's statistics of their own, and the running
statistics are those of real samples. Rows without a partner do not count. With all three weights 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.core.model import Model, Out
from accord.core.task import Corner, Part, View
from accord.core.tensors import Trees, clone
from accord.core.types import Job, State, World
from accord.errors import ConfigError, DataError
from accord.parts.bounds import one_of, whole, within
from accord.parts.orthonormal import SHORTEST
from accord.parts.pseudo import share_of
from accord.parts.virtual import virtual_set
from accord.settings import NOT_NEGATIVE, POSITIVE, AtLeast, Search

Space = Literal["features", "logits"]


def supervised_contrast(rows: Tensor, labels: Tensor, weight: Tensor, tau: float) -> Tensor:
    """Supervised contrastive loss (Khosla et al. 2020) of the rows that count; those without a partner do not."""
    unit = functional.normalize(rows, dim=1, eps=SHORTEST)
    alike = unit @ unit.mT / tau
    others = weight.expand(len(rows), -1) * (1 - torch.eye(len(rows), dtype=weight.dtype, device=weight.device))
    logs = alike - alike.masked_fill(others == 0, -torch.inf).logsumexp(1, keepdim=True)
    partners = others * (labels.unsqueeze(1) == labels)
    count = partners.sum(1)
    each = -(partners * logs).sum(1) / count.clamp(min=1)
    anchors = weight * (count > 0)
    return (each * anchors).sum() / anchors.sum().clamp(min=1)


@dataclass(frozen=True)
class VirtualHomogeneity(Part):
    """The virtual set and its three terms."""

    alpha: float
    contrast: float
    virtual_contrast: float
    tau: float
    count: int
    size: int
    space: Space

    def state(self, model: Model, world: World) -> Trees:
        """The seed."""
        return {"virtual": {"seed": torch.tensor(world.key.number("virtual"), device=model.device)}}

    def send(self, state: State) -> Trees:
        """The seed."""
        return {"virtual": state["virtual"]}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """Which virtual samples each step sees."""
        return {"vhl.pick": rng.random((steps, self.size))}

    def begin(self, model: Model, job: Job) -> Corner:
        """The virtual set, and running statistics that are thrown away."""
        data = job.data
        if not data.x.is_floating_point():
            raise DataError(f"virtual samples take the place of real numbers, but these inputs are {data.x.dtype}")
        seed = int(job.shared["virtual"]["seed"])
        x, y = virtual_set(seed, self.count, data.num_classes, tuple(data.x.shape[1:]), data.x.dtype)
        return {"x": x.to(data.x.device), "y": y.to(data.y.device), "buffers": clone(job.shared["buffers"])}

    def loss(self, view: View) -> Tensor:
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
            labels, weight = torch.cat([batch.y, y]), torch.cat([batch.weight, ones])
            terms.append(self.contrast * supervised_contrast(both, labels, weight, self.tau))
        if self.virtual_contrast:
            terms.append(self.virtual_contrast * supervised_contrast(virtual, y, ones, self.tau))
        return torch.stack(terms).sum()

    def _compared(self, out: Out) -> Tensor:
        return out.features if self.space == "features" else out.logits


def vhl(
    setup: Setup,
    *,
    alpha: Annotated[float, NOT_NEGATIVE, Search(choices=(0.1, 0.5, 1.0)), "weight of the virtual labels"] = 1.0,
    contrast: Annotated[float, NOT_NEGATIVE, Search(0.1, 2.0), "weight of real with virtual samples"] = 1.0,
    virtual_contrast: Annotated[float, NOT_NEGATIVE, "weight of virtual samples among themselves"] = 0.1,
    tau: Annotated[float, POSITIVE, Search(0.05, 0.5, log=True), "temperature of the contrast"] = 0.07,
    count: Annotated[int, AtLeast(2), "virtual samples in all"] = 2000,
    size: Annotated[int, AtLeast(2), "virtual samples in a step"] = 32,
    space: Annotated[Space, "what is contrasted"] = "features",
) -> Method:
    """Average models that share virtual samples."""
    within(NOT_NEGATIVE, alpha=alpha, contrast=contrast, virtual_contrast=virtual_contrast)
    within(POSITIVE, tau=tau)
    whole(AtLeast(2), count=count, size=size)
    one_of(get_args(Space), space=space)
    if count < setup.num_classes:
        raise ConfigError(
            f"algorithm vhl: count = {count} virtual samples cannot show all {setup.num_classes} classes; "
            "raise algorithm.count"
        )
    if alpha == contrast == virtual_contrast == 0:
        return averaging(setup)
    part = VirtualHomogeneity(alpha, contrast, virtual_contrast, tau, count, size, space)
    return averaging(setup.coupled() if contrast else setup, part)
