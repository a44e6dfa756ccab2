"""DANN: a discriminator tells the clients apart by their features, and the features learn to fool it.

Ganin, Ustinova, Ajakan, Germain, Larochelle, Laviolette, Marchand, Lempitsky. "Domain-adversarial training of neural
networks". JMLR 2016, arXiv 1505.07818; in a federation as the baseline of FedBR (Guo, Tang, Lin, ICML 2023).

    D          discriminator D_features-256-256-K over the K clients; its label is the client's own number
    client k:  steps 1, 3, 5, ...:  w <- step on CE(w) - lam CE_D
               steps 2, 4, 6, ...:  D <- step on CE_D
    server:    w and D <- their means over the round's clients, all alike

Sent: the model and D, down and up. D is told which client a sample comes from, and a client only ever sees its own
label: D collapses locally, and what separates the clients comes from averaging alone.
Defaults: lam = 0.1 (of 0.01, 0.1, 1), no gradient penalty, one step of D for each of the model's, the model first.
What waits its turn does not move at all (no momentum, no weight decay); the count starts anew in every round, so
with a single local step D stays as drawn. Half of the local steps train the model. lam = 0 asks for no discriminator
and is FedAvg with uniform weights, all steps the model's. The loss in the metrics is CE - lam CE_D + CE_D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from accord.aggregate import Mean
from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.core.model import Model
from accord.core.task import Part, View
from accord.core.tensors import Trees
from accord.core.types import Carry, Job, State, World
from accord.errors import ConfigError
from accord.parts.bounds import within
from accord.parts.losses import CrossEntropy, cross_entropy
from accord.parts.mlp import init_mlp, mlp
from accord.parts.turns import Turns, taking_turns
from accord.settings import NOT_NEGATIVE, Search

HIDDEN = (256, 256)


@dataclass(frozen=True)
class Discriminator(Part):
    """The discriminator and both sides' terms."""

    lam: float

    def state(self, model: Model, world: World) -> Trees:
        """D, drawn from the run's seed; one output for every client there is, so that any may be asked."""
        sizes = (model.num_features, *HIDDEN, len(world.sizes))
        drawn = init_mlp(world.key.at("discriminator"), sizes)
        return {"discriminator": {name: t.to(model.device) for name, t in drawn.items()}}

    def send(self, state: State) -> Trees:
        """D."""
        return {"discriminator": state["discriminator"]}

    def trainable(self, job: Job) -> Trees:
        """D."""
        return {"discriminator": job.shared["discriminator"]}

    def loss(self, view: View) -> Tensor:
        """CE_D for D and - lam CE_D for the model: each is held fixed in the other's term."""
        features, weight = view.out.features, view.batch.weight
        discriminator = view.params["discriminator"]
        fixed = {name: t.detach() for name, t in discriminator.items()}
        own = view.job.info["client"].expand(len(features))
        found = cross_entropy(mlp(discriminator, features.detach()), own, weight)
        return found - self.lam * cross_entropy(mlp(fixed, features), own, weight)

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """D."""
        return {"discriminator": carry["train"]["discriminator"]}, {}


def by_turns(steps: int) -> Turns:
    """0, 1, 0, 1, ..."""
    return np.arange(steps, dtype=np.int64) % 2


def dann(
    setup: Setup,
    *,
    lam: Annotated[float, NOT_NEGATIVE, Search(choices=(0.01, 0.1, 1.0)), "weight of the adversary"] = 0.1,
) -> Method:
    """Average models whose features hide which client they come from."""
    within(NOT_NEGATIVE, lam=lam)
    if lam == 0:
        return averaging(setup, weight="uniform")
    if not setup.model.num_features:
        raise ConfigError(
            "algorithm dann cannot size its discriminator: the network does not say how many features it has; "
            "give accord.models.adapt an example"
        )
    mean = Mean("uniform")
    turns = {("model", "rest"): 0, ("discriminator", "rest"): 1}
    local = taking_turns(setup.local(CrossEntropy(), Discriminator(lam)), by_turns, turns)
    return setup.method(local, {"model": mean, "buffers": mean, "discriminator": mean})
