"""Models that stay with a client: a second model beside the shared one, and the gradient it is trained with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from accord.core.algorithm import Setup
from accord.core.model import Model, Out
from accord.core.task import Corner, Part
from accord.core.tensors import Tree, Trees, clone
from accord.core.types import Batch, Carry, Job
from accord.errors import ConfigError
from accord.parts.losses import cross_entropy


def batch_gradient(model: Model, params: Tree, buffers: Tree, batch: Batch) -> tuple[Tree, Out]:
    """d CE / d params on the batch in training mode, and the outputs; `buffers` follow it."""
    leaves = {name: t.detach().requires_grad_() for name, t in params.items()}
    with torch.enable_grad():
        out = model.train(leaves, buffers, batch.x)
        loss = cross_entropy(out.logits, batch.y, batch.weight)
        slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, slopes, strict=True)), Out(out.logits.detach(), out.features.detach())


@dataclass(frozen=True)
class OwnModel(Part):
    """A whole second model with running statistics of its own: it starts as the received one and is never sent."""

    def memory(self, job: Job) -> Trees:
        """The model of the client's first visit."""
        return {"own": job.shared["model"], "own_buffers": job.shared["buffers"]}

    def begin(self, model: Model, job: Job) -> Corner:
        """Copies to train on."""
        return {"model": clone(job.memory["own"]), "buffers": clone(job.memory["own_buffers"])}

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """It stays."""
        corner = carry[self.name]
        return {}, {"own": corner["model"], "own_buffers": corner["buffers"]}

    def judged(self, model: Model, job: Job, carry: Carry) -> tuple[Tree, Tree] | None:
        """The client's own model."""
        corner = carry[self.name]
        return corner["model"], corner["buffers"]


def needs_body(setup: Setup, name: str) -> None:
    """Refuse a network of which nothing but the head is trained."""
    if not setup.model.body_names:
        raise ConfigError(
            f"algorithm {name} treats body and head apart, but this network {bodiless(setup.model)}; "
            "choose a model with hidden layers (such as 2nn)"
        )


def bodiless(model: Model) -> str:
    """Why nothing but the head is trained."""
    return "has a frozen body" if model.frozen_names else "is only a head"


def needs_free_head(setup: Setup, name: str) -> None:
    """Refuse a head that its owner has frozen."""
    if setup.model.head_is_frozen:
        raise ConfigError(
            f"algorithm {name} trains a head for every client, but the head of this network is frozen "
            "(requires_grad = False); unfreeze it, or choose a method that treats all layers alike"
        )


def needs_linear_head(setup: Setup, name: str) -> None:
    """Refuse a head that is not one linear layer."""
    prefix = setup.model.head_prefix.removesuffix(".")
    head = setup.model.network.get_submodule(prefix)
    if not isinstance(head, nn.Linear):
        raise ConfigError(
            f"algorithm {name} adds a second linear head, but the head {prefix!r} of this model is a "
            f"{type(head).__name__}; name the last linear layer as the head"
        )
