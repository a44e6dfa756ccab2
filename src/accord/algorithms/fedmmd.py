"""FedMMD: the local model's outputs stay distributed like the global model's.

Yao, Huang, Wu, Zhang, Sun. "Federated learning with additional mechanisms on clients to reduce communication
costs". arXiv 1908.05891, 2019. First in Yao, Huang, Sun. "Two-stream federated learning: reduce the
communication costs". VCIP 2018.

    client k:  min_w  CE(w) + lam * max(floor, MMD^2(G, L)),  [B, C] logits G = h(x; w_t), frozen, L = h(x; w)
               MMD^2(G, L) = mean_ij k(g_i, g_j) + mean_ij k(l_i, l_j) - 2 mean_ij k(g_i, l_j)
               k(a, b) = sum_s exp(-|a - b|^2 / 2s)
    fedl2:     min_w  CE(w) + (lam / 2) sum_{i,c} (G - L)^2_ic,   a sum over batch and classes
    server:    w_{t+1} = mean_k w_k   (uniform)

Sent: as FedAvg, the model down and up; the frozen stream is the received model, in evaluation mode. It is run once
per client and round over the client's samples, or, when another part mixes the batch, in every step; and in every
step where kernels are `fixed`, as in the published code: the narrowest tell one rounding of a product from another,
so that G = L for equal weights holds for one batch alone.

Defaults: lam = 0.1 (MMD) and 0.001 (L2, the paper's for MNIST; it tried 0.1 and 0.01 on CIFAR-10). The paper
leaves open which outputs and which kernel. From its published code: logits, 19 `fixed` widths s from 1e-6 to
1e6 with their kernels summed, and the floor of 1e-4 under which there is no gradient (so none in the first
step of a round, where G = L). `median` is the choice of DAN (Long et al., ICML 2015): s = 2^-3, ..., 2^1
times the mean squared distance between two of the batch's 2B outputs; `dan` takes that mean over all 4 B^2 pairs, an
output with itself included, as the published MK-MMD does, so its kernels are narrower by 1 - 1 / 2B.
MMD compares the samples of a batch: the last one is filled up unless local.last_batch says otherwise, and
batches of one are refused. lam = 0 is FedAvg with uniform weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

import accord.authoring as fl
from accord.parts.lookup import gathered, in_chunks

Output = Literal["logits", "features"]
Kernel = Literal["fixed", "median", "dan"]

FIXED_WIDTHS = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    *(5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0),
    *(1e2, 1e3, 1e4, 1e5, 1e6),
)
RELATIVE_WIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)  # 2^-3 to 2^1 times the mean distance


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """[B, B] |a_i - b_j|^2 from the differences themselves: never negative, exactly 0 for equal rows.

    |a|^2 + |b|^2 - 2ab is faster, but loses what the narrow kernels look at: at |a| = 10 its error in single
    precision is ten times the narrowest width.
    """
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()


def mmd(x: Tensor, y: Tensor, weight: Tensor, widths: Tensor, kernel: Kernel = "fixed") -> Tensor:
    """MMD^2 with summed Gaussian kernels, biased (a sample is compared with itself too); 0 for equal inputs.

    `weight` 0 leaves a sample out. Widths that are not fixed are multiples of the mean squared distance between two of
    the 2B samples, which is treated as a constant.
    """
    pair = weight[:, None] * weight / weight.sum().square()
    xx, yy, xy = squared_distances(x, x), squared_distances(y, y), squared_distances(x, y)
    if kernel != "fixed":
        # The diagonal adds nothing to the sum; `median` takes it off the count too.
        count = 4 - 2 * pair.diagonal().sum() if kernel == "median" else 4
        mean = (pair * (xx + yy + 2 * xy)).sum().detach() / count
        widths = widths * mean.clamp(min=torch.finfo(mean.dtype).tiny)

    def near(distances: Tensor) -> Tensor:
        return torch.exp(-distances / (2 * widths[:, None, None])).sum(0)

    return (pair * (near(xx) + near(yy) - 2 * near(xy))).sum()


@dataclass(frozen=True)
class TwoStream(fl.Part, ABC):
    """lam * distance between the outputs of the received model, frozen, and of the trained one."""

    problems = ("classification", "multilabel", "regression")
    needs = "one vector of outputs per sample"
    lam: float
    on: Output = "logits"

    @abstractmethod
    def distance(self, received: Tensor, trained: Tensor, weight: Tensor, corner: fl.Corner) -> Tensor:
        """What is penalised; 0-d."""

    def received(self, model: fl.Model, job: fl.Job) -> Callable[[Tensor], Tensor]:
        """The frozen stream, in evaluation mode."""
        start = job.shared["model"], job.shared["buffers"]
        return lambda x: self.output(model.reference(*start, x))

    def output(self, out: tuple[Tensor, Tensor]) -> Tensor:
        """The compared half of a model's output."""
        logits, features = out
        return logits if self.on == "logits" else features

    @property
    def asks_once(self) -> bool:
        """Whether an output may be of another batch than the one it is compared in."""
        return True

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """The received model's outputs on all of the client's samples; they stay the same all round."""
        if self.lam == 0 or not self.asks_once:
            return {}
        return {"received": in_chunks(self.received(model, job), job.data.x)}

    def loss(self, view: fl.View) -> fl.Term | None:
        """None at lam = 0, so that it costs and changes nothing."""
        if self.lam == 0:
            return None
        corner = view.carry[self.name]
        received = gathered(corner.get("received"), view.batch, self.received(view.model, view.job))
        return view.whole(self.lam * self.distance(received, self.output(view.out), view.batch.weight, corner))


@dataclass(frozen=True)
class MMD(TwoStream):
    """lam * max(floor, MMD^2): below the floor, as in the first step of a round, there is no gradient."""

    stacks = False  # kernels of variance 1e-6 take two roundings of one product for two features
    kernel: Kernel = "fixed"
    floor: float = 1e-4

    @property
    def couples(self) -> bool:
        return True

    @property
    def asks_once(self) -> bool:
        """Not for kernels of variance 1e-6, see above."""
        return self.kernel != "fixed"

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """Also the kernels' widths, so that no step copies them to the device."""
        if self.lam == 0:
            return {}
        widths = FIXED_WIDTHS if self.kernel == "fixed" else RELATIVE_WIDTHS
        outputs = next(iter(job.shared["model"].values()))  # of the same type
        return {**super().begin(model, job), "widths": outputs.new_tensor(widths)}

    def distance(self, received: Tensor, trained: Tensor, weight: Tensor, corner: fl.Corner) -> Tensor:
        """max(floor, MMD^2)."""
        distance = mmd(received, trained, weight, corner["widths"], self.kernel)
        return distance.clamp(min=self.floor)


@dataclass(frozen=True)
class OutputL2(TwoStream):
    """(lam / 2) * sum over samples and outputs of the squared difference; a sum, not a mean."""

    def distance(self, received: Tensor, trained: Tensor, weight: Tensor, corner: fl.Corner) -> Tensor:
        """Half the sum of squares."""
        return 0.5 * (weight[:, None] * (received - trained).square()).sum()


@fl.method("papers")
def fedmmd(
    setup: fl.Setup,
    *,
    lam: Annotated[float, fl.AtLeast(0), fl.Search(0.01, 1.0, log=True), "weight of the discrepancy"] = 0.1,
    kernel: Annotated[Kernel, "19 fixed widths, or five around the mean distance in a batch"] = "fixed",
    floor: Annotated[float, fl.AtLeast(0), "discrepancies below this have no gradient"] = 1e-4,
    on: Annotated[Output, "which outputs of the two models are compared"] = "logits",
    weight: fl.Weight = "uniform",
) -> fl.Method:
    """Average models whose outputs were held near the global model's, as distributions."""
    if lam == 0:
        return fl.averaging(setup, weight=weight)
    if setup.plan.batch_size == 1:
        raise fl.ConfigError(
            "algorithm fedmmd compares the samples of a batch, but local.batch_size = 1; use at least 2 "
            "(0 for all of a client's data), or algorithm fedl2, which compares sample by sample"
        )
    return fl.averaging(setup, MMD(lam, on, kernel, floor), weight=weight)


@fl.method("papers")
def fedl2(
    setup: fl.Setup,
    *,
    lam: Annotated[float, fl.AtLeast(0), fl.Search(1e-4, 0.1, log=True), "weight of the difference"] = 1e-3,
    on: Annotated[Output, "which outputs of the two models are compared"] = "logits",
    weight: fl.Weight = "uniform",
) -> fl.Method:
    """Average models whose outputs were held near the global model's, sample by sample."""
    return fl.averaging(setup, OutputL2(lam, on), weight=weight)
