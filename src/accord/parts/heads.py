"""Heads that are not trained with the body: frozen ones, orthonormal ones, and those that stay with the client.

The frozen head with orthonormal rows that reads unit features is from Dong, Zhang, Li, Kung. "SphereFed: hyperspherical
federated learning". ECCV 2022, arXiv 2207.09413.

    logits = V z / |z|,   V V^T = I [C, C],  no bias

V is made from the model's own first head, so all methods of a comparison that use one start alike. It is never
trained or averaged: all clients place their classes in the same directions from the first round on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from accord.core.algorithm import Setup
from accord.core.given import duplicate
from accord.core.model import Model
from accord.core.task import Part
from accord.core.tensors import Trees
from accord.core.types import Carry, Job
from accord.errors import ConfigError

SHORTEST = 1e-4  # shorter features are not stretched to length one: gradients grow by 1 / length


class UnitHead(nn.Module):
    """Cosines between the features and the rows of an orthonormal matrix."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.in_features = weight.shape[1]
        self.weight = nn.Parameter(weight)

    def forward(self, features: Tensor) -> Tensor:
        """[B, C] logits in [-1, 1]."""
        return nn.functional.normalize(features, dim=-1, eps=SHORTEST) @ self.weight.mT


def orthonormal_head(model: Model) -> Model:
    """The model with its linear head replaced. Train it with `frozen=frozenset(model.head_names)`."""
    if not model.problem.one_class:
        raise ConfigError(
            f"a frozen orthonormal head has a direction for every class, and {model.problem.name} has no classes; use "
            "no frozen head"
        )
    network = duplicate(model.network)
    name = model.head_prefix.removesuffix(".")
    head = network.get_submodule(name)
    if not isinstance(head, nn.Linear):
        raise ConfigError(
            f"a frozen orthonormal head takes the place of one linear layer, but the head {name!r} of this "
            f"model is a {type(head).__name__}; name the last linear layer as the head"
        )
    if model.head_is_frozen or not model.body_names:
        raise ConfigError(
            "a frozen orthonormal head takes the place of the network's own, and the body is trained under it, but "
            f"here {'that head is frozen' if model.head_is_frozen else 'no body is trained'}; unfreeze it "
            "(requires_grad = True), choose a model with hidden layers, or use no orthonormal head"
        )
    classes, features = head.weight.shape
    if classes > features:
        raise ConfigError(
            f"a frozen orthonormal head needs a feature for every class, but the model gives {features} "
            f"features for {classes} classes; use a wider last layer, or no frozen head"
        )
    parent, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(parent), leaf, UnitHead(orthonormal_rows(head.weight.detach())))
    return model.computing(network)


def orthonormal_rows(weight: Tensor) -> Tensor:
    """Gram-Schmidt on the rows, in float64: each keeps the side of the old row it came from."""
    q, r = torch.linalg.qr(weight.double().mT)
    diagonal: Tensor = r.diagonal()
    if bool((diagonal.abs() <= 1e-9 * torch.linalg.matrix_norm(r)).any()):
        raise ConfigError(
            "the rows of the head's first weight are linearly dependent (all zero?), so no orthonormal head "
            "can be made of them; use a model whose head is drawn at random"
        )
    rows: Tensor = (q * diagonal.sign()).mT.contiguous()
    return rows.to(weight.dtype)


@dataclass(frozen=True)
class FixedHead(Part):
    """Keeps the frozen head out of the replies: everyone has it, and averaging equal numbers rounds them."""

    problems = ("any",)

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """The trained model without its head."""
        trained = carry["train"]["model"]
        return {"model": {name: t for name, t in trained.items() if name not in model.head_names}}, {}


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


def personal_head(setup: Setup, name: str) -> frozenset[str]:
    """The head's names; refused when nothing would be left to federate."""
    if not setup.model.body_names:
        raise ConfigError(
            f"algorithm {name} keeps the head at home, but this network {bodiless(setup.model)}: nothing would be "
            "shared; choose a model with hidden layers (such as 2nn), or algorithm local"
        )
    needs_free_head(setup, name)
    return frozenset(setup.model.head_names)
