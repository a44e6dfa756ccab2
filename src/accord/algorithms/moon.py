"""MOON: local features are drawn to the global model's and away from the client's previous model's.

Li, He, Song. "Model-contrastive federated learning". CVPR 2021, arXiv 2103.16257.

    z, z_g, z_p   projected features of the trained model, the received one and the client's last one (both frozen)
    client k:  min_w  CE(w) + mu mean_i softplus( (cos(z_i, z_p,i) - cos(z_i, z_g,i)) / tau )
               (softplus(b - a) = -log(e^a / (e^a + e^b)): z_g is the positive, z_p the negative)
    server:    w_{t+1} = sum_k a_k w_k,   the projector likewise

Sent: the model and the projector, down and up. Kept by the client: the model, buffers and projector it last sent,
renewed whenever it trains; at its first visit the received ones stand in, and the term has no gradient at the start.
The frozen projections are computed once per client and round, in evaluation mode.

Defaults: mu = 1 (the paper: 5 for CIFAR-10, 1 for CIFAR-100, of 0.1, 1, 5, 10), tau = 0.5, projector D-D-256 with a
ReLU between. mu = 0 is FedAvg.
Deviation: in the paper the classifier reads the projection, which makes it a deeper network than those it is
compared with: classifier = "projection". By default it reads the features, as with every other method, and the
projector serves the contrast alone. projection = 0 contrasts the features themselves, without projector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

import accord.authoring as fl
from accord.core.disclosure import Declared, Disclosure
from accord.parts.lookup import asked, gathered, in_chunks
from accord.parts.losses import contrast
from accord.parts.mlp import init_mlp, mlp
from accord.parts.projection import DrawnProjection, with_projection

Reads = Literal["features", "projection"]

KEPT = {"model": "previous", "buffers": "previous_buffers", "projector": "previous_projector"}


@dataclass(frozen=True)
class ModelContrast(fl.Part):
    """The contrastive term, its projector and the client's previous model."""

    problems = ("any",)
    mu: float
    tau: float
    projection: int

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """The projector, drawn from the run's seed."""
        if not self.projection:
            return {}
        sizes = (model.num_features, model.num_features, self.projection)
        drawn = init_mlp(world.key.at("projector"), sizes)
        return {"projector": {name: t.to(model.device) for name, t in drawn.items()}}

    def send(self, state: fl.State) -> fl.Trees:
        return {"projector": state["projector"]} if self.projection else {}

    def memory(self, job: fl.Job) -> fl.Trees:
        """A client without a past takes the received model for its previous one."""
        return {kept: job.shared[tree] for tree, kept in KEPT.items() if tree in job.shared}

    def trainable(self, job: fl.Job) -> fl.Trees:
        return {"projector": job.shared["projector"]} if self.projection else {}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """z_g and z_p of all of the client's samples."""
        old = self._previous(job)
        (received,) = asked(job, self.name, lambda x: (self._frozen(model, job.shared, x),))
        previous = in_chunks(lambda x: self._frozen(model, old, x), job.data.x)
        return {"global": received, "previous": previous}

    def loss(self, view: fl.View) -> fl.Term:
        """mu times the mean contrast."""
        corner, old = view.carry[self.name], self._previous(view.job)
        z = self._project(view.params, view.out.features)
        z_g = gathered(corner["global"], view.batch, lambda x: self._frozen(view.model, view.job.shared, x))
        z_p = gathered(corner["previous"], view.batch, lambda x: self._frozen(view.model, old, x))
        return self.mu * view.mean(contrast(z, z_g, z_p, self.tau))

    def discloses(self) -> Declared:
        return {"projector": Disclosure.UPDATE} if self.projection else {}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """The projector travels; all that was trained is the next visit's previous model."""
        trained: fl.Trees = {**carry["train"], "buffers": carry["buffers"]}
        reply = {"projector": trained["projector"]} if self.projection else {}
        return reply, {kept: trained[tree] for tree, kept in KEPT.items() if tree in trained}

    @staticmethod
    def _previous(job: fl.Job) -> fl.Trees:
        return {tree: job.memory[kept] for tree, kept in KEPT.items() if kept in job.memory}

    def _frozen(self, model: fl.Model, trees: Mapping[str, fl.Tree], x: Tensor) -> Tensor:
        return self._project(trees, model.reference(trees["model"], trees["buffers"], x).features)

    def _project(self, trees: Mapping[str, fl.Tree], features: Tensor) -> Tensor:
        return mlp(trees["projector"], features) if self.projection else features


@fl.method("client")
def moon(
    setup: fl.Setup,
    *,
    mu: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.1, 1.0, 5.0, 10.0)), "weight of the contrast"] = 1.0,
    tau: Annotated[float, fl.Range(above=0), fl.Search(0.1, 1.0, log=True), "temperature of the contrast"] = 0.5,
    projection: Annotated[int, fl.AtLeast(0), "length of a projection; 0: contrast the features"] = 256,
    classifier: Annotated[Reads, "what it reads; projection: as in the paper, a deeper network"] = "features",
) -> fl.Method:
    """Average models trained with the model-contrastive term."""
    if classifier == "projection":
        return _published(setup, mu, tau, projection)
    if mu == 0:
        return fl.averaging(setup)
    if projection and not setup.model.num_features:
        raise fl.ConfigError(
            "algorithm moon cannot size its projector: the network does not say how many features it has; "
            "give accord.models.adapt an example, or set algorithm.projection = 0"
        )
    trees = ("model", "buffers", "projector") if projection else ("model", "buffers")
    local = setup.local(fl.SampleLoss(), ModelContrast(mu, tau, projection))
    return setup.method(local, dict.fromkeys(trees, fl.Mean()))


def _published(setup: fl.Setup, mu: float, tau: float, projection: int) -> fl.Method:
    """The projection is the last but one layer of the network, so the features that are contrasted are projections."""
    if not projection:
        raise fl.ConfigError(
            "algorithm moon: classifier = 'projection' reads a projection, and with projection = 0 there is none; "
            "set projection above 0, or classifier to 'features'"
        )
    deeper = with_projection(setup, "moon", projection)
    contrast = [ModelContrast(mu, tau, 0)] if mu else []
    return fl.averaging(deeper, DrawnProjection(), *contrast)
