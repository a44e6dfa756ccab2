"""FedBR: pseudo-data balance the local classifier and hold the local features to the global ones.

Guo, Tang, Lin. "FedBR: Improving federated learning on heterogeneous data via local learning bias reduction".
ICML 2023, arXiv 2205.13462.

    phi the extractor, omega the classifier, P_theta a projector; (x, y) a batch, (x_p, q) the pseudo-batch
    s1 = cos(P phi(x_p), P phi_t(x_p)),   s2 = cos(P phi(x_p), P phi(x)),   paired by index, phi_t frozen
    L_con = mean -log( e^{s1 / tau} / (e^{s1 / tau} + e^{s2 / tau}) )
    client k, every step:
      max:  theta <- theta + eta grad_theta L_con                              (features held fixed)
      min:  (phi, omega) <- step on  CE(x, y) + lam CE(x_p, q) + mu L_con      (with the new theta)
    server: phi, omega, theta <- their means over the round's clients, all alike

lam is component 1 (the classifier's bias), mu component 2 (the features' bias): mu = 0 is component 1 alone,
without projector and max step; lam = 0 is component 2 alone; both 0 is FedAvg with uniform weights.

Pseudo-data, as many as a batch:
  RSM      each the mean of 10 samples, drawn with replacement, of a client drawn uniformly; q = 1 / C.
           `balanced` draws a class the client holds first, then a sample of it.
  proxy    the same means of a public set, passed from Python as `proxy`; clients contribute nothing.
  Mixture  in every step `mixed` = K random samples of the batch are mixed into each, of either kind:
           (x_p + sum x_k) / (K + 1) with q = (1 / C + sum y_k) / (K + 1).
They are made before the first round, by all clients, and with `every_round` again in every later round, by
its cohort (a new one costs |D_p| samples up, and shows the server new means).

Sent: model, projector and pseudo-data down; model and projector up; once or every round |D_p| means up, in all.
Means are not private, least of all those of a client with few samples, which it draws again and again; with
`proxy`, whatever `mixed` is, nothing leaves a client but its update.

Defaults: lam = 1 (the paper's for MNIST and CIFAR-100; 0.1 for CIFAR-10 and PACS), mu = 0.5, projector
D-256-256-128, new pseudo-data in every round, RSM. tau = 0.5: the paper prints 2, but the published code
multiplies by it where the formula divides, so 0.5 is what its results were run with.

Choices where paper and code differ or are silent: the projector has the paper's sizes (the code's follow D);
phi_t's features are computed for the pseudo-batch at hand (the code keeps those of the round's first step,
which Mixture then compares with other images); uniform means, as Algorithm 1; the max step uses the local
optimizer with a state of its own, new in every round. max_step = false leaves the projector as drawn;
projector = false compares the features themselves, and there is no max step. A batch shorter than the
pseudo-data is paired with the first of them; the last batch is filled up unless local.last_batch says
otherwise. Batch and pseudo-batch go through the model in one pass; BatchNorm sees two batches.

Other parts (`extra`, by name; `parts`, from Python) act on the same step: Mixup replaces the batch
everywhere, FedCM the direction of the min step (the max step stays plain), FedDecorr and FedNTD add their
terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accord.aggregate import Mean
from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Aggregator, Method, Setup, put
from accord.core.model import Model, Out
from accord.core.optim import Optimizer, clip_by_norm
from accord.core.task import Corner, Part, View, gradient_of
from accord.core.tensors import Tree, Trees, clone
from accord.core.types import Batch, Carry, Exchange, Job, Replies, State, World
from accord.errors import ConfigError
from accord.parts.bounds import whole, within
from accord.parts.contrast import contrast
from accord.parts.forwards import two_batches
from accord.parts.losses import CrossEntropy, weighted_mean
from accord.parts.mlp import init_mlp, mlp
from accord.parts.pseudo import PseudoData, as_proxy, mixture
from accord.parts.registry import build_parts, check_together, fitting
from accord.settings import NOT_NEGATIVE, POSITIVE, AtLeast, Search

PROJECTOR = (256, 256, 128)
NO_SIZE = (
    "algorithm fedbr wants as many pseudo-samples as a batch has, and local.batch_size = 0 means all of a client's "
    "data: set algorithm.size, or local.batch_size above 0"
)
NO_FEATURES = (
    "algorithm fedbr projects the features, but the model does not say how many it has: give the network a "
    "num_features, or set projector = false"
)


def l_con(projector: Tree | None, features: Tensor, weight: Tensor, tau: float) -> Tensor:
    """L_con of [3, B, D] features: phi(x_p), phi_t(x_p) and phi(x), projected in one pass."""
    pseudo, received, local = features if projector is None else mlp(projector, features)
    return weighted_mean(contrast(pseudo, received, local, tau), weight)


@dataclass(frozen=True)
class BiasReduction(Part):
    """Both components on the pseudo-data the server sends."""

    lam: float
    mu: float
    tau: float
    size: int  # of the pseudo-batch
    mixed: int
    projects: bool
    maximises: bool
    optimizer: Optimizer
    clip: float = 0.0

    @property
    def couples(self) -> bool:
        """Pairs the batch with the pseudo-batch."""
        return self.mu > 0

    def state(self, model: Model, world: World) -> Trees:
        """The projector, drawn from the run's seed."""
        if not self.projects:
            return {}
        drawn = init_mlp(world.key.at("projector"), (model.num_features, *PROJECTOR))
        return {"projector": {name: t.to(model.device) for name, t in drawn.items()}}

    def send(self, state: State) -> Trees:
        """Pseudo-data and projector."""
        return {name: state[name] for name in ("pseudo", "projector") if name in state}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """Which samples are mixed into which pseudo-sample."""
        return {"fedbr.mixed": rng.random((steps, self.size, self.mixed))} if self.mixed else {}

    def begin(self, model: Model, job: Job) -> Corner:
        """A projector to train, and the global features of pseudo-data that stay the same in all steps."""
        corner: Corner = {"projector": clone(job.shared["projector"]) if self.projects else None}
        if self.maximises:
            corner["optimizer"] = self.optimizer.init(corner["projector"])
        if self.mu and not self.mixed:
            corner["received"] = self._received(model, job, job.shared["pseudo"]["x"])
        return corner

    def forward(self, model: Model, job: Job, carry: Carry, params: Trees, batch: Batch) -> Out:
        """The task's forward, on batch and pseudo-batch; what is found of the latter is left in the corner."""
        x, q = mixture(job.shared["pseudo"]["x"], job.data.num_classes, batch, batch.noise.get("fedbr.mixed"))
        own, pseudo = two_batches(model, params["model"], carry["buffers"], batch.x, x)
        carry[self.name]["pseudo"] = x, q, pseudo
        return own

    def loss(self, view: View) -> Tensor:
        """lam CE(x_p, q) + mu L_con, after the max step, which wants the very features of the min step."""
        corner: Corner = view.carry[self.name]
        x, q, out = corner.pop("pseudo")
        balance = self.lam * functional.cross_entropy(out.logits, q)
        if self.mu == 0:
            return balance
        received = self._received(view.model, view.job, x) if self.mixed else corner["received"]
        pairs = min(len(x), len(view.batch.x))
        features = torch.stack([out.features[:pairs], received[:pairs], view.out.features[:pairs]])
        weight = view.batch.weight[:pairs]
        if self.maximises:
            self._max_step(view.job, corner, features.detach(), weight)
        apart = self.mu * l_con(corner["projector"], features, weight, self.tau)
        return balance + apart if self.lam else apart

    def finish(self, model: Model, job: Job, carry: Carry) -> tuple[Trees, Trees]:
        """The projector, if it was trained."""
        return ({"projector": carry[self.name]["projector"]} if self.maximises else {}), {}

    def _max_step(self, job: Job, corner: Corner, features: Tensor, weight: Tensor) -> None:
        descent = gradient_of(lambda tree: -l_con(tree, features, weight, self.tau), corner["projector"])
        descent = clip_by_norm(descent, self.clip) if self.clip else descent
        self.optimizer.update(corner["projector"], descent, corner["optimizer"], job.info["lr"])

    @staticmethod
    def _received(model: Model, job: Job, x: Tensor) -> Tensor:
        with torch.no_grad():
            return model.reference(job.shared["model"], job.shared["buffers"], x).features


@dataclass(frozen=True)
class _FedBR(Method):
    """The usual round, after new pseudo-data where they are wanted."""

    pseudo: PseudoData = PseudoData(0)  # noqa: RUF009 - frozen
    every_round: bool = True

    def start(self, state: State, world: World, exchange: Exchange) -> State:
        """The first pseudo-data, from all clients."""
        return put(state, pseudo=self.pseudo.make(world, world.clients, exchange))

    def round(self, state: State, world: World, exchange: Exchange) -> tuple[State, Replies]:
        """New pseudo-data from the round's own clients, then training."""
        if self.every_round and world.round > 0:
            state = put(state, pseudo=self.pseudo.make(world, self.sampler(state, world), exchange))
        return super().round(state, world, exchange)


def fedbr(
    setup: Setup,
    parts: tuple[Part, ...] = (),
    proxy: Tensor | None = None,
    *,
    lam: Annotated[float, NOT_NEGATIVE, Search(choices=(0.1, 1.0)), "component 1: weight of CE(x_p, q)"] = 1.0,
    mu: Annotated[float, NOT_NEGATIVE, Search(choices=(0.1, 0.5, 1.0)), "component 2: weight of L_con"] = 0.5,
    tau: Annotated[float, POSITIVE, Search(choices=(0.5, 1.0, 2.0)), "temperature that divides"] = 0.5,
    max_step: Annotated[bool, "train the projector to tell local from global features"] = True,
    projector: Annotated[bool, "compare projected features; false: the features, and no max step"] = True,
    every_round: Annotated[bool, "new pseudo-data in every round; false: once"] = True,
    mixed: Annotated[int, AtLeast(0), "K, local samples mixed into each pseudo-sample; 1 is Mixture"] = 0,
    means: Annotated[int, AtLeast(2), "samples averaged in one pseudo-sample"] = 10,
    size: Annotated[int, AtLeast(0), "pseudo-samples; 0: as many as local.batch_size"] = 0,
    balanced: Annotated[bool, "draw classes evenly when samples are averaged"] = False,
    extra: Annotated[tuple[str, ...], "further parts, such as mixup, fedcm, feddecorr, fedntd"] = (),
) -> Method:
    """Average models trained with pseudo-data against the bias of local classifiers and features."""
    within(NOT_NEGATIVE, lam=lam, mu=mu)
    within(POSITIVE, tau=tau)
    whole(NOT_NEGATIVE, mixed=mixed, size=size)
    whole(AtLeast(2), means=means)
    others = (*parts, *build_parts(setup, extra))
    check_together(others)
    if lam == 0 and mu == 0:
        return averaging(fitting(setup, others), *others, weight="uniform")
    size, projects = size or setup.plan.batch_size, projector and mu > 0
    if size == 0:
        raise ConfigError(NO_SIZE)
    if projects and not setup.model.num_features:
        raise ConfigError(NO_FEATURES)
    part = BiasReduction(lam, mu, tau, size, mixed, projects, projects and max_step, setup.optimizer, setup.clip)
    trees = ("model", "buffers", "projector") if part.maximises else ("model", "buffers")
    rules: dict[str, Aggregator] = dict.fromkeys(trees, Mean("uniform"))
    source = PseudoData(size, means, balanced, None if proxy is None else as_proxy(proxy, setup.model))
    local = fitting(setup, (*others, part)).local(CrossEntropy(), *others, part, forward=part.forward)
    return _FedBR(local, rules, setup.sampler, setup.schedule, source.tasks(), False, source, every_round)
