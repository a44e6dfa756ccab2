"""GroupDRO: clients whose loss stays high gain weight in the average.

Sagawa, Koh, Hashimoto, Liang. "Distributionally robust neural networks for group shifts". ICLR 2020,
arXiv 1911.08731; in a federation as the baseline of FedBR (Guo, Tang, Lin, ICML 2023): a group is a client.

    client k:  as FedAvg -> w_k;   l_k the loss of the round's first local step
    server:    p_k <- p_k exp(eta l_k)   for the round's clients,   p_k = 1 at first
               w_{t+1} = sum_k p_k w_k / sum_k p_k

Sent: as FedAvg, and l_k up (the mean loss of one batch at w_t). Kept by the server: log p of every client, whose
softmax over the round's clients is the same average and cannot overflow.
Defaults: eta = 0.01. eta = 0 is FedAvg with uniform weights. FedBR's code trains with Mixup inside this baseline; here
it is plain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch

import accord.authoring as fl
from accord.core.disclosure import Declared, Disclosure


@dataclass(frozen=True)
class GroupWeights(fl.SampleLoss):
    """Cross-entropy that remembers its first value, and the weights the server makes of it."""

    needs_each = "weighs each client by its loss"
    eta: float

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """log p = 0 for every client."""
        zeros = torch.zeros(len(world.sizes), dtype=torch.float64, device=model.device)
        return {"groups": {"log_weight": zeros}}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """1 in the first step, 0 in the others; nothing is drawn."""
        return {"groupdro.first": (np.arange(steps) == 0).astype(np.float64)}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """No loss yet; it stays 0 for a client that takes no step."""
        return {"loss": torch.zeros_like(job.info["lr"])}

    def loss(self, view: fl.View) -> fl.Term:
        """The batch's mean, noted in the first step."""
        term = super().loss(view)
        view.carry[self.name]["loss"].add_(term.value.detach() * view.batch.noise["groupdro.first"])
        return term

    def discloses(self) -> Declared:
        return {"first_loss": Disclosure.SCORE}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        return {"first_loss": {"loss": carry[self.name]["loss"]}}, {}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """New weights, and the averages by them."""
        log_weight = state["groups"]["log_weight"].clone()
        losses = torch.stack([tree["loss"] for tree in replies.each("first_loss")])
        cohort = torch.tensor(replies.ids, device=log_weight.device)
        log_weight[cohort] += self.eta * losses.to(log_weight)
        share = log_weight[cohort].softmax(0)
        averages = {tree: {**state[tree], **replies.mean(tree, share)} for tree in ("model", "buffers")}
        return {**averages, "groups": {"log_weight": log_weight}}


@fl.method("client")
def groupdro(
    setup: fl.Setup,
    *,
    eta: Annotated[float, fl.AtLeast(0), fl.Search(1e-3, 0.1, log=True), "how fast weights follow losses"] = 0.01,
) -> fl.Method:
    """Average with weights that grow with a client's loss."""
    return setup.method(setup.local(GroupWeights(eta)), {})
