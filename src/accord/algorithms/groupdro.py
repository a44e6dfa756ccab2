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
from torch import Tensor

from accord.core.algorithm import Method, Setup
from accord.core.model import Model
from accord.core.task import Corner, View
from accord.core.tensors import Trees
from accord.core.types import Carry, Job, Replies, State, World
from accord.parts.bounds import within
from accord.parts.losses import CrossEntropy
from accord.settings import NOT_NEGATIVE, Search


@dataclass(frozen=True)
class GroupWeights(CrossEntropy):
    """Cross-entropy that remembers its first value, and the weights the server makes of it."""

    eta: float

    def state(self, model: Model, world: World) -> Trees:
        """log p = 0 for every client."""
        zeros = torch.zeros(len(world.sizes), dtype=torch.float64, device=model.device)
        return {"groups": {"log_weight": zeros}}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """1 in the first step, 0 in the others; nothing is drawn."""
        return {"groupdro.first": (np.arange(steps) == 0).astype(np.float64)}

    def begin(self, model: Model, job: Job) -> Corner:
        """No loss yet; it stays 0 for a client that takes no step."""
        return {"loss": torch.zeros_like(job.info["lr"])}

    def loss(self, view: View) -> Tensor:
        """The batch's mean, noted in the first step."""
        value = super().loss(view)
        view.carry[self.name]["loss"].add_(value.detach() * view.batch.noise["groupdro.first"])
        return value

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """l_k."""
        return {"first_loss": {"loss": carry[self.name]["loss"]}}, {}

    def update(self, state: State, replies: Replies, world: World) -> State:
        """New weights, and the averages by them."""
        log_weight = state["groups"]["log_weight"].clone()
        losses = torch.stack([tree["loss"] for tree in replies.each("first_loss")])
        cohort = torch.tensor(replies.ids, device=log_weight.device)
        log_weight[cohort] += self.eta * losses.to(log_weight)
        share = log_weight[cohort].softmax(0)
        averages = {tree: {**state[tree], **replies.mean(tree, share)} for tree in ("model", "buffers")}
        return {**averages, "groups": {"log_weight": log_weight}}


def groupdro(
    setup: Setup,
    *,
    eta: Annotated[float, NOT_NEGATIVE, Search(1e-3, 0.1, log=True), "how fast weights follow losses"] = 0.01,
) -> Method:
    """Average with weights that grow with a client's loss."""
    within(NOT_NEGATIVE, eta=eta)
    return setup.method(setup.local(GroupWeights(eta)), {})
