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

import accord.authoring as fl
from accord.core.disclosure import Declared, Disclosure
from accord.parts.losses import cross_entropy
from accord.parts.mlp import init_mlp, mlp
from accord.parts.phases import Turns, taking_turns

HIDDEN = (256, 256)


@dataclass(frozen=True)
class Discriminator(fl.Part):
    """The discriminator and both sides' terms."""

    problems = ("any",)
    lam: float

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """D, drawn from the run's seed; one output for every client there is, so that any may be asked."""
        sizes = (model.num_features, *HIDDEN, len(world.sizes))
        drawn = init_mlp(world.key.at("discriminator"), sizes)
        return {"discriminator": {name: t.to(model.device) for name, t in drawn.items()}}

    def send(self, state: fl.State) -> fl.Trees:
        return {"discriminator": state["discriminator"]}

    def trainable(self, job: fl.Job) -> fl.Trees:
        return {"discriminator": job.shared["discriminator"]}

    def loss(self, view: fl.View) -> fl.Term:
        """CE_D for D and - lam CE_D for the model: each is held fixed in the other's term."""
        features, discriminator = view.out.features, view.params["discriminator"]
        fixed = {name: t.detach() for name, t in discriminator.items()}
        client = view.job.info["client"].expand(len(features))
        naming = view.mean(cross_entropy(mlp(discriminator, features.detach()), client))
        return naming - self.lam * view.mean(cross_entropy(mlp(fixed, features), client))

    def discloses(self) -> Declared:
        return {"discriminator": Disclosure.UPDATE}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        return {"discriminator": carry["train"]["discriminator"]}, {}


def by_turns(steps: int) -> Turns:
    """0, 1, 0, 1, ..."""
    return np.arange(steps, dtype=np.int64) % 2


@fl.method("client")
def dann(
    setup: fl.Setup,
    *,
    lam: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.01, 0.1, 1.0)), "weight of the adversary"] = 0.1,
) -> fl.Method:
    """Average models whose features hide which client they come from."""
    if lam == 0:
        return fl.averaging(setup, weight="uniform")
    if not setup.model.num_features:
        raise fl.ConfigError(
            "algorithm dann cannot size its discriminator: the network does not say how many features it has; "
            "give accord.models.adapt an example"
        )
    mean = fl.Mean("uniform")
    turns = {("model", "rest"): 0, ("discriminator", "rest"): 1}
    local = taking_turns(setup.local(fl.SampleLoss(), Discriminator(lam)), by_turns, turns)
    return setup.method(local, {"model": mean, "buffers": mean, "discriminator": mean})
