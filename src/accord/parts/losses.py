"""Losses of samples and the terms most methods start from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from accord.core.model import Model, Out
from accord.core.task import Part
from accord.core.tensors import Tree
from accord.core.types import Batch, weighted_mean
from accord.core.view import Term, View


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """[B] cross-entropies with class indices [B] or soft labels [B, C]."""
    return functional.cross_entropy(logits, labels, reduction="none")


def contrast(anchor: Tensor, positive: Tensor, negative: Tensor, tau: float) -> Tensor:
    """[B] -log(e^{p / tau} / (e^{p / tau} + e^{n / tau})), p and n the cosines of paired rows to it."""
    nearer = functional.cosine_similarity(anchor, negative) - functional.cosine_similarity(anchor, positive)
    return functional.softplus(nearer / tau)


@dataclass(frozen=True)
class SampleLoss(Part):
    """The loss every method starts from, the problem's own: cross-entropy where samples have classes."""

    problems = ("any",)

    def loss(self, view: View) -> Term:
        return view.mean(view.losses(view.out.logits))


def batch_gradient(model: Model, params: Tree, buffers: Tree, batch: Batch) -> tuple[Tree, Out]:
    """d loss / d params on the batch in training mode, and the outputs; `buffers` follow it."""
    leaves = {name: t.detach().requires_grad_() for name, t in params.items()}
    with torch.enable_grad():
        out = model.train(leaves, buffers, batch.x)
        loss = weighted_mean(model.problem.loss(out.logits, batch.y), batch.weight)
        slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, slopes, strict=True)), Out(out.logits.detach(), out.features.detach())
