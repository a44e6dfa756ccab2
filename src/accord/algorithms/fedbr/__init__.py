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
  proxy    the same means of a public set, named by `public` or passed from Python as `proxy`; clients contribute
           nothing.
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
everywhere, FedCM the direction of the min step (with fedcm_steps = "both", as the paper has it, that of the max
step too, along a mean direction of the projectors; both means go down), FedDecorr and FedNTD add their terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

import accord.authoring as fl
from accord.algorithms.fedbr.components import BiasReduction
from accord.algorithms.fedbr.pseudo import PseudoData, as_proxy
from accord.core.algorithm import put
from accord.core.types import Exchange
from accord.parts.composition import build_parts, check_together
from accord.parts.momentum import ClientMomentum

NO_SIZE = (
    "algorithm fedbr wants as many pseudo-samples as a batch has, and local.batch_size = 0 means all of a client's "
    "data: set algorithm.size, or local.batch_size above 0"
)
NO_FEATURES = (
    "algorithm fedbr projects the features, but the model does not say how many it has: give the network a "
    "num_features, or set projector = false"
)
NO_FEDCM = (
    "algorithm fedbr: fedcm_steps = 'both' gives FedCM's direction to the max step too, which wants fedcm among extra, "
    "mu above 0, projector = true and max_step = true; set them, or fedcm_steps to 'min'"
)


@dataclass(frozen=True)
class FedBR(fl.Method):
    """The usual round, after new pseudo-data where they are wanted."""

    pseudo: PseudoData = PseudoData(0)  # noqa: RUF009 - frozen
    every_round: bool = True

    @property
    def needs_each(self) -> str:
        return "passes each client's pseudo-samples on" if self.pseudo.tasks() else ""

    def start(self, state: fl.State, world: fl.World, exchange: Exchange) -> fl.State:
        """The first pseudo-data, from all clients."""
        return put(state, pseudo=self.pseudo.make(world, world.clients, exchange))

    def round(self, state: fl.State, world: fl.World, exchange: Exchange) -> tuple[fl.State, fl.Replies]:
        """New pseudo-data from the round's own clients, then training."""
        if self.every_round and world.round > 0:
            state = put(state, pseudo=self.pseudo.make(world, self.sampler(state, world), exchange))
        return super().round(state, world, exchange)


@fl.method("papers")
def fedbr(
    setup: fl.Setup,
    parts: tuple[fl.Part, ...] = (),
    proxy: Tensor | None = None,
    *,
    lam: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.1, 1.0)), "component 1: weight of CE(x_p, q)"] = 1.0,
    mu: Annotated[float, fl.AtLeast(0), fl.Search(choices=(0.1, 0.5, 1.0)), "component 2: weight of L_con"] = 0.5,
    tau: Annotated[float, fl.Range(above=0), fl.Search(choices=(0.5, 1.0, 2.0)), "temperature that divides"] = 0.5,
    max_step: Annotated[bool, "train the projector to tell local from global features"] = True,
    projector: Annotated[bool, "compare projected features; false: the features, and no max step"] = True,
    every_round: Annotated[bool, "new pseudo-data in every round; false: once"] = True,
    mixed: Annotated[int, fl.AtLeast(0), "K, local samples mixed into each pseudo-sample; 1 is Mixture"] = 0,
    means: Annotated[int, fl.AtLeast(2), "samples averaged in one pseudo-sample"] = 10,
    size: Annotated[int, fl.AtLeast(0), "pseudo-samples; 0: as many as local.batch_size"] = 0,
    balanced: Annotated[bool, "draw classes evenly when samples are averaged"] = False,
    public: Annotated[str, "a data set to average samples of instead of the clients' (it fills `proxy`)"] = "",
    extra: Annotated[tuple[str, ...], "further parts, such as mixup, fedcm, feddecorr, fedntd"] = (),
    fedcm_steps: Annotated[Literal["min", "both"], "which steps fedcm acts on, if it is in extra"] = "min",
) -> fl.Method:
    """Average models trained with pseudo-data against the bias of local classifiers and features."""
    others = (*parts, *build_parts(setup, extra))
    check_together(others)
    momentum = next((part for part in others if isinstance(part, ClientMomentum)), None)
    if fedcm_steps == "both" and not (momentum and max_step and projector and mu):
        raise fl.ConfigError(NO_FEDCM)
    if lam == 0 and mu == 0:
        return fl.averaging(setup, *others, weight="uniform")
    size, projects = size or setup.plan.batch_size, projector and mu > 0
    if size == 0:
        raise fl.ConfigError(NO_SIZE)
    if projects and not setup.model.num_features:
        raise fl.ConfigError(NO_FEATURES)
    follows = momentum if fedcm_steps == "both" else None
    steps = (projects and max_step, setup.optimizer, setup.clip, follows)
    part = BiasReduction(lam, mu, tau, size, mixed, projects, *steps)
    trees = ("model", "buffers", "projector") if part.maximises else ("model", "buffers")
    if public:
        if proxy is not None:
            raise fl.ConfigError("fedbr is given samples as `proxy` and a data set as algorithm.public: choose one")
        proxy = setup.public(public)
    source = PseudoData(size, means, balanced, None if proxy is None else as_proxy(proxy, setup.model))
    local, rules = setup.local(fl.SampleLoss(), *others, part), dict.fromkeys(trees, fl.Mean("uniform"))
    fields = {"extra_tasks": source.tasks(), "pseudo": source, "every_round": every_round}
    return setup.method(local, rules, kind=FedBR, **fields)
