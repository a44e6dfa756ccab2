"""FedBABU: only the body is federated, the head stays as it was drawn; clients fine-tune at the end.

Oh, Kim, Yun. "FedBABU: towards enhanced representation for federated image classification". ICLR 2022,
arXiv 2106.06042.

    client k:    steps on CE of the body, the head held at its first value, the same for everyone -> body_k
    server:      body <- sum_k a_k body_k
    evaluation:  client k fine-tunes the received model for tune_epochs epochs on its own data (tune = "head": the
                 head alone, "all": the whole model) and is judged with it

Sent: the body up, the whole model down. Nothing is kept by the client. The global model is the averaged body under
the first head. Personal accuracy before is the received model's on the client's own test data, after it the fine-tuned
one's. Fine-tuning starts from the model of this round's message and is thrown away: nothing of it is
trained on or sent, and it is skipped where personal accuracy is not measured.
Defaults: 5 epochs of the whole model with the round's learning rate and the shared local optimizer (a fresh state),
batch size and clipping; 0 epochs judge the received model itself. Its batches are the client's samples in their own
order, the last one filled up from the start, no chance involved. The frozen head feels neither momentum nor weight
decay. Weights by samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

import accord.authoring as fl
from accord.core.optim import Optimizer, clip_by_norm
from accord.core.tensors import clone
from accord.parts.heads import FixedHead, bodiless, needs_free_head
from accord.parts.losses import batch_gradient

Tuned = Literal["head", "all"]


@dataclass(frozen=True)
class FineTuned(fl.Part):
    """Judges a client with the received model after some epochs on its own data."""

    problems = ("any",)
    epochs: int
    tune: Tuned
    optimizer: Optimizer
    batch_size: int
    clip: float

    def judged(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Tree, fl.Tree]:
        params, buffers = clone(job.shared["model"]), clone(job.shared["buffers"])
        moving = {name: t for name, t in params.items() if self.tune == "all" or name in model.head_names}
        state = self.optimizer.init(moving)
        total = len(job.data.y)
        size = min(self.batch_size or total, total)
        for _ in range(self.epochs):
            for start in range(0, total, size or 1):
                # The last batch is filled from the start: batch norm cannot train on a single sample.
                index = torch.arange(start, start + size, device=job.data.y.device) % total
                x, y = job.data.x[index], job.data.y[index]
                batch = fl.Batch(x, y, torch.ones_like(index, dtype=job.info["lr"].dtype), index, {})
                slopes, _ = batch_gradient(model, params, buffers, batch)
                grads = {name: slopes[name] for name in moving}
                grads = clip_by_norm(grads, self.clip) if self.clip else grads
                self.optimizer.update(moving, grads, state, job.info["lr"])
        return params, buffers

    def judged_before(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Tree, fl.Tree]:
        return job.shared["model"], job.shared["buffers"]


@fl.method("personal")
def fedbabu(
    setup: fl.Setup,
    *,
    tune_epochs: Annotated[int, fl.AtLeast(0), fl.Search(choices=(1, 5, 10)), "epochs of fine-tuning"] = 5,
    tune: Annotated[Tuned, "fine-tune the head alone, or the whole model"] = "all",
) -> fl.Method:
    """Average bodies trained under one frozen head."""
    if not setup.model.body_names:
        raise fl.ConfigError(
            f"algorithm fedbabu treats body and head apart, but this network {bodiless(setup.model)}; "
            "choose a model with hidden layers (such as 2nn)"
        )
    if tune == "head":
        needs_free_head(setup, "fedbabu")
    tuned = FineTuned(tune_epochs, tune, setup.optimizer, setup.plan.batch_size, setup.clip)
    local = setup.local(fl.SampleLoss(), FixedHead(), tuned, frozen=frozenset(setup.model.head_names))
    return setup.method(local, {"model": fl.Mean(), "buffers": fl.Mean()})
