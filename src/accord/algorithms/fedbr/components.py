"""FedBR's two components: pseudo-data balance the classifier, and hold the local features to the global ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import accord.authoring as fl
from accord.algorithms.fedbr.pseudo import mixture
from accord.core.disclosure import Declared, Disclosure
from accord.core.model import Out
from accord.core.optim import Optimizer, clip_by_norm
from accord.core.task import gradient_of
from accord.core.tensors import clone, zeros_like
from accord.core.types import weighted_mean
from accord.parts.losses import contrast
from accord.parts.mlp import init_mlp, mlp
from accord.parts.momentum import ClientMomentum

PROJECTOR = (256, 256, 128)


def two_batches(model: fl.Model, params: fl.Tree, buffers: fl.Tree, first: Tensor, second: Tensor) -> tuple[Out, Out]:
    """The outputs of both in one pass; one after the other where a layer couples the samples of a batch."""
    if model.couples_batch:
        return model.train(params, buffers, first), model.train(params, buffers, second)
    out = model.train(params, buffers, torch.cat([first, second]))
    count = len(first)
    return Out(out.logits[:count], out.features[:count]), Out(out.logits[count:], out.features[count:])


def l_con(projector: fl.Tree | None, features: Tensor, weight: Tensor, tau: float) -> Tensor:
    """L_con of [3, B, D] features: phi(x_p), phi_t(x_p) and phi(x), projected in one pass."""
    pseudo, received, local = features if projector is None else mlp(projector, features)
    return weighted_mean(contrast(pseudo, received, local, tau), weight)


@dataclass(frozen=True)
class BiasReduction(fl.Part):
    """Both components on the pseudo-data the server sends."""

    needs_each = ""
    needs = "soft labels for its pseudo-data"
    mixes = True
    lam: float
    mu: float
    tau: float
    size: int  # of the pseudo-batch
    mixed: int
    projects: bool
    maximises: bool
    optimizer: Optimizer
    clip: float
    momentum: ClientMomentum | None = None  # of FedCM, if the max step follows it too

    @property
    def couples(self) -> bool:
        """Pairs the batch with the pseudo-batch."""
        return self.mu > 0

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """The projector, drawn from the run's seed."""
        if not self.projects:
            return {}
        drawn = init_mlp(world.key.at("projector"), (model.num_features, *PROJECTOR))
        projector = {name: t.to(model.device) for name, t in drawn.items()}
        return {"projector": projector} | ({"projector_momentum": zeros_like(projector)} if self.momentum else {})

    def send(self, state: fl.State) -> fl.Trees:
        return {name: state[name] for name in ("pseudo", "projector", "projector_momentum") if name in state}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """Which samples are mixed into which pseudo-sample."""
        return {"fedbr.mixed": rng.random((steps, self.size, self.mixed))} if self.mixed else {}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """A projector to train, and the global features of pseudo-data that stay the same in all steps."""
        corner: fl.Corner = {"projector": clone(job.shared["projector"]) if self.projects else None}
        if self.maximises:
            corner["optimizer"] = self.optimizer.init(corner["projector"])
        if self.mu and not self.mixed:
            corner["received"] = self._received(model, job, job.shared["pseudo"]["x"])
        return corner

    def forward(self, model: fl.Model, job: fl.Job, carry: fl.Carry, params: fl.Trees, batch: fl.Batch) -> Out:
        """The task's forward, on batch and pseudo-batch; what is found of the latter is left in the corner."""
        x, q = mixture(job.shared["pseudo"]["x"], job.data.num_classes, batch, batch.noise.get("fedbr.mixed"))
        own, pseudo = two_batches(model, params["model"], carry["buffers"], batch.x, x)
        carry[self.name]["pseudo"] = x, q, pseudo
        return own

    def loss(self, view: fl.View) -> fl.Term:
        """lam CE(x_p, q) + mu L_con, after the max step, which wants the very features of the min step."""
        corner: fl.Corner = view.carry[self.name]
        x, q, out = corner.pop("pseudo")
        balance = self.lam * functional.cross_entropy(out.logits, q)
        if self.mu == 0:
            return view.whole(balance)
        received = self._received(view.model, view.job, x) if self.mixed else corner["received"]
        pairs = min(len(x), len(view.batch.x))
        features = torch.stack([out.features[:pairs], received[:pairs], view.out.features[:pairs]])
        weight = view.batch.weight[:pairs]
        if self.maximises:
            self._max_step(view.job, corner, features.detach(), weight)
        apart = self.mu * l_con(corner["projector"], features, weight, self.tau)
        return view.whole(balance + apart if self.lam else apart)

    def discloses(self) -> Declared:
        return {"projector": Disclosure.UPDATE} if self.maximises else {}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """The projector, if it was trained."""
        return ({"projector": carry[self.name]["projector"]} if self.maximises else {}), {}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """The projectors' mean direction, where the next max steps are to follow it."""
        if self.momentum is None:
            return {}
        return {"projector_momentum": self.momentum.direction("projector", state, replies, world)}

    def _max_step(self, job: fl.Job, corner: fl.Corner, features: Tensor, weight: Tensor) -> None:
        descent = gradient_of(lambda tree: -l_con(tree, features, weight, self.tau), corner["projector"])
        if self.momentum is not None:
            descent = self.momentum.mixed(job, descent, job.shared["projector_momentum"])
        descent = clip_by_norm(descent, self.clip) if self.clip else descent
        self.optimizer.update(corner["projector"], descent, corner["optimizer"], job.info["lr"])

    @staticmethod
    def _received(model: fl.Model, job: fl.Job, x: Tensor) -> Tensor:
        with torch.no_grad():
            return model.reference(job.shared["model"], job.shared["buffers"], x).features
