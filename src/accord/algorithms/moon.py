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
compared with. Here the classifier reads the features, as with every other method, and the projector serves the
contrast alone. projection = 0 contrasts the features themselves, without projector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from torch import Tensor

from accord.aggregate import Mean
from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.core.model import Model
from accord.core.task import Corner, Part, View
from accord.core.tensors import Tree, Trees
from accord.core.types import Carry, Job, State, World
from accord.errors import ConfigError
from accord.parts.bounds import whole, within
from accord.parts.contrast import contrast
from accord.parts.frozen import gathered, in_chunks
from accord.parts.losses import weighted_mean
from accord.parts.mlp import init_mlp, mlp
from accord.settings import NOT_NEGATIVE, POSITIVE, Search

KEPT = {"model": "previous", "buffers": "previous_buffers", "projector": "previous_projector"}


@dataclass(frozen=True)
class ModelContrast(Part):
    """The contrastive term, its projector and the client's previous model."""

    mu: float
    tau: float
    projection: int

    def state(self, model: Model, world: World) -> Trees:
        """The projector, drawn from the run's seed."""
        if not self.projection:
            return {}
        sizes = (model.num_features, model.num_features, self.projection)
        drawn = init_mlp(world.key.at("projector"), sizes)
        return {"projector": {name: t.to(model.device) for name, t in drawn.items()}}

    def send(self, state: State) -> Trees:
        """The projector."""
        return {"projector": state["projector"]} if self.projection else {}

    def memory(self, job: Job) -> Trees:
        """A client without a past takes the received model for its previous one."""
        return {kept: job.shared[tree] for tree, kept in KEPT.items() if tree in job.shared}

    def trainable(self, job: Job) -> Trees:
        """The projector."""
        return {"projector": job.shared["projector"]} if self.projection else {}

    def begin(self, model: Model, job: Job) -> Corner:
        """z_g and z_p of all of the client's samples."""
        old = self._previous(job)
        return {
            "global": in_chunks(lambda x: self._frozen(model, job.shared, x), job.data.x),
            "previous": in_chunks(lambda x: self._frozen(model, old, x), job.data.x),
        }

    def loss(self, view: View) -> Tensor:
        """mu times the mean contrast."""
        corner, old = view.carry[self.name], self._previous(view.job)
        z = self._project(view.params, view.out.features)
        z_g = gathered(corner["global"], view.batch, lambda x: self._frozen(view.model, view.job.shared, x))
        z_p = gathered(corner["previous"], view.batch, lambda x: self._frozen(view.model, old, x))
        return self.mu * weighted_mean(contrast(z, z_g, z_p, self.tau), view.batch.weight)

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """The projector travels; all that was trained is the next visit's previous model."""
        trained: Trees = {**carry["train"], "buffers": carry["buffers"]}
        reply = {"projector": trained["projector"]} if self.projection else {}
        return reply, {kept: trained[tree] for tree, kept in KEPT.items() if tree in trained}

    @staticmethod
    def _previous(job: Job) -> Trees:
        return {tree: job.memory[kept] for tree, kept in KEPT.items() if kept in job.memory}

    def _frozen(self, model: Model, trees: Mapping[str, Tree], x: Tensor) -> Tensor:
        return self._project(trees, model.reference(trees["model"], trees["buffers"], x).features)

    def _project(self, trees: Mapping[str, Tree], features: Tensor) -> Tensor:
        return mlp(trees["projector"], features) if self.projection else features


def moon(
    setup: Setup,
    *,
    mu: Annotated[float, NOT_NEGATIVE, Search(choices=(0.1, 1.0, 5.0, 10.0)), "weight of the contrast"] = 1.0,
    tau: Annotated[float, POSITIVE, Search(0.1, 1.0, log=True), "temperature of the contrast"] = 0.5,
    projection: Annotated[int, NOT_NEGATIVE, "length of a projection; 0: contrast the features"] = 256,
) -> Method:
    """Average models trained with the model-contrastive term."""
    within(NOT_NEGATIVE, mu=mu)
    whole(NOT_NEGATIVE, projection=projection)
    within(POSITIVE, tau=tau)
    if mu == 0:
        return averaging(setup)
    if projection and not setup.model.num_features:
        raise ConfigError(
            "algorithm moon cannot size its projector: the network does not say how many features it has; "
            "give accord.models.adapt an example, or set algorithm.projection = 0"
        )
    method = averaging(setup, ModelContrast(mu, tau, projection))
    return replace(method, aggregate={**method.aggregate, **({"projector": Mean()} if projection else {})})
