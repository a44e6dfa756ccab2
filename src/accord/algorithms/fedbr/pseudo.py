"""Pseudo-data: a few blurred samples everyone shares, each the mean of some samples of one source.

P pseudo-samples, M samples in each. The source is the clients (a client answers with means of its own samples)
or a public proxy set the server holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import accord.authoring as fl
from accord.core.disclosure import Declared, Disclosure
from accord.core.plan import Plan
from accord.core.task import Task
from accord.core.types import ClientData, Exchange, Result
from accord.errors import DataError
from accord.parts.samples import share_of, soft_labels


def uniform_picks(data: ClientData, draws: Tensor) -> Tensor:
    """[P, M] positions in the client's data, every sample equally likely."""
    return share_of(draws[1], len(data.y))


def balanced_picks(data: ClientData, draws: Tensor) -> Tensor:
    """[P, M] positions: every class the client holds equally likely, then every sample of that class."""
    order = data.y.argsort(stable=True)
    counts = data.class_counts()
    counts = counts[counts > 0]
    starts = counts.cumsum(0) - counts
    which = share_of(draws[0], len(counts))
    return order[starts[which] + share_of(draws[1], counts[which])]


def mixture(x: Tensor, num_classes: int, batch: fl.Batch, draws: Tensor | None) -> tuple[Tensor, Tensor]:
    """[P, ...] pseudo-samples and their [P, C] labels, uniform; samples of the batch mixed in by [P, M] draws."""
    q = x.new_full((len(x), num_classes), 1 / num_classes)
    if draws is None:
        return x, q
    picks = share_of(draws, batch.weight.sum())  # padding is never picked
    labels, count = soft_labels(batch.y, num_classes, x), draws.shape[1] + 1
    return (x + batch.x[picks].sum(1)) / count, (q + labels[picks].sum(1)) / count


@dataclass(frozen=True)
class Contribute:
    """A client program that trains nothing: as many means of its samples as `private["wanted"]` asks for.

    Its single step only takes delivery of the random draws, which are the client's own: a server that could
    choose the samples could ask for one of them M times.
    """

    size: int
    means: int
    balanced: bool
    plan: Plan = Plan(epochs=0, steps=1, batch_size=1)  # noqa: RUF009 - frozen, so it can be shared

    def first_memory(self, job: fl.Job) -> fl.Trees:
        return {}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """Two numbers per sample of a mean: one for its class, one for its position."""
        return {"contribute.draws": rng.random((steps, 2, self.size, self.means))}

    def begin(self, job: fl.Job) -> fl.Carry:
        """Room for the draws."""
        return {"draws": torch.zeros(2, self.size, self.means, device=job.info["lr"].device)}

    def step(self, job: fl.Job, carry: fl.Carry, batch: fl.Batch) -> fl.Carry:
        carry["draws"].copy_(batch.noise["contribute.draws"])
        return carry

    def discloses(self) -> Declared:
        return {"pseudo": Disclosure.MEAN}

    def finish(self, job: fl.Job, carry: fl.Carry) -> Result:
        """The means, [count, ...]."""
        count = int(job.private["wanted"]["count"])
        if not job.data.x.is_floating_point():
            raise DataError(f"pseudo-data needs inputs that are real numbers, these are {job.data.x.dtype}")
        pick = balanced_picks if self.balanced else uniform_picks
        return Result({"pseudo": {"x": means_of(job.data.x, pick(job.data, carry["draws"])[:count])}}, {}, {})


def means_of(x: Tensor, picks: Tensor) -> Tensor:
    """[P, ...] the mean of the samples in every row of `picks`, one row at a time."""
    return torch.stack([x.index_select(0, row).mean(0) for row in picks])


def as_proxy(samples: Tensor, model: fl.Model) -> Tensor:
    """Public samples as the model takes them, or a ConfigError."""
    real = isinstance(samples, Tensor) and samples.is_floating_point()
    if not real or samples.dim() < 2 or not len(samples):
        raise fl.ConfigError(
            "proxy must be a tensor of real numbers, one sample per row, prepared like the clients' inputs"
        )
    samples = samples.to(model.device, torch.get_default_dtype())
    if not bool(torch.isfinite(samples).all()):
        raise fl.ConfigError("proxy holds NaN or infinity: remove those samples")
    try:
        with torch.no_grad():
            model.reference(*model.init(), samples[:1])
    except RuntimeError as error:
        shape = tuple(samples.shape[1:])
        raise fl.ConfigError(f"proxy samples of shape {shape} do not fit the model: {error}") from error
    return samples


@dataclass(frozen=True, eq=False)
class PseudoData:
    """P means of M samples: of clients, drawn uniformly for every mean, or of the server's `proxy`."""

    size: int
    means: int = 10
    balanced: bool = False
    proxy: Tensor | None = None

    def tasks(self) -> dict[str, Task]:
        """What clients must be able to do for it."""
        return {} if self.proxy is not None else {"contribute": Contribute(self.size, self.means, self.balanced)}

    def make(self, world: fl.World, clients: Sequence[int], exchange: Exchange) -> fl.Tree:
        """[P, ...] pseudo-samples; a client is asked for exactly as many as it was drawn for."""
        rng = world.key.at("pseudo", world.round)
        if self.proxy is not None:
            picks = torch.from_numpy(rng.integers(len(self.proxy), size=(self.size, self.means)))
            return {"x": means_of(self.proxy, picks.to(self.proxy.device))}
        able = [client for client in sorted(clients) if world.sizes[client] > 0]
        counts = np.bincount(rng.integers(len(able), size=self.size), minlength=len(able))
        wanted = {client: torch.tensor(n) for client, n in zip(able, counts.tolist(), strict=True) if n}
        private = {client: {"wanted": {"count": n}} for client, n in wanted.items()}
        replies = exchange("contribute", list(wanted), {}, private)
        x = torch.cat([tree["x"] for tree in replies.each("pseudo")])
        # Clients that did not answer are made up for by repeating what the others sent.
        return {"x": x[torch.arange(self.size, device=x.device) % len(x)]}
