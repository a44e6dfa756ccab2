"""FedUFO: unified feature learning and optimization objective alignment; FedUAD is its first stage.

Zhang, Luo, Bai, Du, Duan. "Federated learning for non-IID data via unified feature learning and optimization
objective alignment". ICCV 2021, pages 4420-4428.

    group S_t, m = |S_t|; client k with samples x_i; y^, f^: predictions, features of the model in training
    prior:      w~_k <- SGD on the cross-entropy from w_t; the group exchanges its priors by the server
    UAD:        L_uniform = -(1 / K) sum_j log softmax(D(f^_i))_j                      D fixed
    CGR:        u_i = sum_{j in S_t} p_j * softmax h(x_i; w~_j),  p_jc = n_jc / sum_j' n_j'c,
                L_cgr = KL(y^_i || softmax(u_i))                                       priors fixed, own too
    CGL:        L_cgl = KL(y^_i || softmax h(x_i; w_t))                                w_t fixed
    posterior:  w_k <- SGD on  L_cls + L_uniform                         stage one, `stage_one_rounds` rounds
                           or  L_cls + L_uniform + L_cgr + lambda L_cgl  stage two
    D:          min  -log softmax(D(f^_i))_k - 1 / (m - 1) sum_{j != k} log softmax(D(h_e(x_i; w~_j)))_j
    server:     w and D: means weighted by samples
    sampling:   stage two, with CGL: the m / 2 clients of lowest local performance, m / 2 others at random

Sent: with UAD or CGR two exchanges a round. Up 1: prior (and class counts n_kc for CGR); down 2: the m
priors, stacked, w_t and D; up 2: posterior and D. That is m + 2 models down and 2 up for each client, and it
shows every client of a group the others' models and class counts. CGL alone sends what FedAvg sends. Dynamic
sampling adds one number up (performance = "stale"), or w_t down to and one number up from every client ("fresh").
Kept by the client: nothing (its discriminator with disc_home = "client").

`terms` and `dynamic` give the rows of the paper's Tables 3 to 5; left alone, all terms are on with dynamic
sampling (FedUFO of Tables 1, 2 and 5). `cls` is FedAvg. A term of weight 0 is off; nothing is sent for it.

Defaults are the readings that trained well in first measurements on MNIST; read literally (disc_lr = 1,
kl_reduction = "batch") D wins and accuracy falls below FedAvg's.
- disc_lr: 0.01 of the local rate. The paper gives D no rate of its own; at 1 D soon names every client.
- kl_reduction: "mean" divides by the classes too, so the printed lambda = 3 acts as 0.3 with ten classes.
- cgr_target: "softmax" as printed. A softmax of probabilities is nearly flat (at most e : 1), so that CGR acts
  much like an entropy bonus; "normalise" is u / sum(u), "logits" softmax(sum_j p_j * logits_j).
Choices where the paper is silent or disagrees with itself:
- disc_classes: K outputs and a uniform target over K ("all"), index = client id; "group" has m outputs, index
  = position in S_t. What is learned about positions does not outlive a round: it wants disc_home = "fresh".
- disc_home: D is averaged like the model ("server"), private and stale ("client"), or drawn anew per client
  and round ("fresh"). A fresh D trained after the posterior would be thrown away: it stays as drawn, and UAD
  then exchanges nothing; with disc_train = "batch" it learns within the round.
- disc_train: disc_epochs after the posterior ("round"), or one step after each of the model's ("batch").
- start: the posterior starts from w_t ("global"), the reading under which CGL alone costs nothing, or from
  the client's own prior ("prior").
- kl: KL(y^ || y~) as printed ("reverse"), or KL(y~ || y^) ("forward").
- stage_one_rounds: not given; half of the run where UAD and a consensus term are both on, otherwise none.
- Local performance: accuracy of w_t on the client's own training samples before it trains (no test data), as of
  its last visit ("stale"). Measured anew on everyone ("fresh"), the worst are clients of the same class, which
  fill half the group with it: on MNIST, ten of a hundred clients a round, that fell below FedAvg.
- The server averages; the paper's "SGD in client and server" is not read as a server step of 0.01.
- D has the local weight decay, its own momentum and no clipping. Frozen models run in evaluation mode.
- A client asked without a group (personal accuracy at the end, unseen clients) has no CGR and leaves D alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import torch

from accord.aggregate.mean import Mean
from accord.core.algorithm import Aggregator, Method, Setup, put
from accord.core.optim import SGD
from accord.core.task import Part, Task
from accord.core.tensors import Trees, ordered_trees
from accord.core.types import Exchange, Replies, State, World
from accord.errors import ConfigError
from accord.parts import alignment
from accord.parts.alignment import Discriminator, UniformAlignment
from accord.parts.consensus import Divergence, GlobalConsensus, GroupConsensus, KLDirection, KLReduction
from accord.parts.losses import CrossEntropy
from accord.parts.peers import ClassCounts, FromPrior, GroupTarget, Peers, group_message
from accord.parts.worst_half import MeasurePerformance, Performance, WorstHalf, measured
from accord.settings import NOT_NEGATIVE, AtLeast, Search

Terms = Literal["cls", "cgr", "cgl", "uad", "uad+cgr", "uad+cgl", "all"]
Start = Annotated[Literal["global", "prior"], "the posterior starts from the global model or its own prior"]
UadWeight = Annotated[float, NOT_NEGATIVE, Search(0.1, 1.0, log=True), "weight of L_uniform"]

NO_FEATURES = (
    "UAD reads the model's features, and this model does not say which layer gives them: wrap it with "
    'accord.models.adapt(module, head="..."), or set terms to cgr, cgl or cls'
)
NO_GROUP = (
    "UAD and CGR compare the clients of a round, so at least two must take part: raise clients.count or "
    "clients.fraction, or set terms to cgl or cls"
)
NO_PRIOR = "start = 'prior' needs UAD or CGR, which train a prior: set start to 'global', or other terms"
NOT_FRESH = (
    "disc_classes = 'group' numbers D's outputs by position in the round's group, so a D kept over rounds "
    "would mix up clients: set disc_home to 'fresh', or disc_classes to 'all'"
)
NO_CGL = "dynamic sampling goes with the CGL loss only: set dynamic to false, or terms to one with cgl"
NO_STAGE_TWO = "stage_one_rounds must be below rounds, or CGR and CGL never act: lower it, or use feduad"
NEVER = 1 << 62  # a round that does not come


@dataclass(frozen=True)
class FedUFO(Method):
    """A method whose rounds may begin with a measurement of every client and an exchange of priors."""

    grouped: bool = False  # whether clients are told who else takes part
    priors_from: int = NEVER
    measure_from: int = NEVER

    def round(self, state: State, world: World, exchange: Exchange) -> tuple[State, Replies]:
        """Measure, choose, exchange priors, train posteriors, average."""
        model: Trees = {"model": state["model"], "buffers": state["buffers"]}
        if world.round >= self.measure_from:
            state = put(state, **measured(state, exchange("performance", world.clients, model)))
        ids, message = self.sampler(state, world), self.message(state)
        if world.round >= self.priors_from:
            priors = exchange("prior", ids, model)
            ids = list(priors.ids)  # a client lost with its prior is not asked again
            message |= group_message(priors, self.model.device)
        elif self.grouped:
            message["group"] = {"ids": torch.tensor(ids, device=self.model.device)}
        replies = exchange("train", ids, ordered_trees(message))
        return self.fold(state, world, replies), replies


def fedufo(
    setup: Setup,
    *,
    terms: Annotated[Terms, "losses beside the classification loss"] = "all",
    dynamic: Annotated[bool | None, "half of the clients are the worst; none: only with all terms"] = None,
    stage_one_rounds: Annotated[int | None, AtLeast(0), "rounds before CGR and CGL; none: half, or 0"] = None,
    uad_weight: UadWeight = 1.0,
    cgr_weight: Annotated[float, NOT_NEGATIVE, Search(0.1, 3.0, log=True), "weight of L_cgr"] = 1.0,
    cgl_weight: Annotated[float, NOT_NEGATIVE, Search(choices=(1, 2, 3, 5)), "lambda, weight of L_cgl"] = 3.0,
    kl: Annotated[KLDirection, "reverse: KL(ours || target); forward: KL(target || ours)"] = "reverse",
    kl_reduction: Annotated[KLReduction, "KL averaged over batch and classes, or over the batch"] = "mean",
    cgr_target: Annotated[GroupTarget, "how the group's predictions are merged"] = "softmax",
    performance: Annotated[
        Literal["fresh", "stale"], "measured on every client each round, or when a client takes part"
    ] = "stale",
    start: Start = "global",
    disc_classes: alignment.DiscClasses = "all",
    disc_home: alignment.DiscHome = "server",
    disc_train: alignment.DiscTrain = "round",
    disc_layers: alignment.DiscLayers = 2,
    disc_lr: alignment.DiscRate = 0.01,
    disc_momentum: alignment.DiscMomentum = 0.9,
    disc_epochs: alignment.DiscEpochs = 1,
) -> Method:
    """Align features by a discriminator, predictions with the group and the global model."""
    _check_words(locals())
    chosen = ("uad", "cgr", "cgl") if terms == "all" else terms.split("+")
    uad = "uad" in chosen and uad_weight > 0
    cgr = "cgr" in chosen and cgr_weight > 0
    cgl = "cgl" in chosen and cgl_weight > 0
    dynamic = terms == "all" and cgl if dynamic is None else dynamic
    staged = setup.rounds // 2 if uad and (cgr or cgl) else 0
    stage_two = staged if stage_one_rounds is None else stage_one_rounds
    asked = min(getattr(setup.sampler, "count", setup.num_clients), setup.num_clients)
    for wrong, why in (
        (uad and setup.model.num_features == 0, NO_FEATURES),
        ((uad or cgr) and asked < 2, NO_GROUP),
        (start == "prior" and not (uad or cgr), NO_PRIOR),
        (uad and disc_classes == "group" and disc_home != "fresh", NOT_FRESH),
        (dynamic and not cgl, NO_CGL),
        ((cgr or cgl) and stage_two >= setup.rounds, NO_STAGE_TWO),
    ):
        if wrong:
            raise ConfigError(f"algorithm fedufo: {why}")

    optimizer = SGD(disc_momentum, getattr(setup.optimizer, "weight_decay", 0.0))
    plan = replace(setup.plan, epochs=disc_epochs, steps=0)
    disc = Discriminator(disc_classes, disc_home, disc_train, disc_layers, disc_lr, optimizer, plan)
    divergence = Divergence(kl, kl_reduction)
    peers = Peers(uad and disc.learns, cgr_target if cgr else None, stage_two)
    priors_from = 0 if peers.features or start == "prior" else stage_two if cgr else NEVER
    fresh = dynamic and performance == "fresh"

    parts: list[Part] = [CrossEntropy()]
    parts += [peers] if uad or cgr else []
    parts += [UniformAlignment(peers, uad_weight, disc, setup.model.num_features)] if uad else []
    parts += [GroupConsensus(peers, cgr_weight, divergence)] if cgr else []
    parts += [GlobalConsensus(cgl_weight, divergence, stage_two)] if cgl else []
    parts += [Performance(stale=not fresh)] if dynamic else []
    local = setup.local(*parts)
    tasks: dict[str, Task] = {}
    if priors_from < NEVER:
        tasks["prior"] = setup.local(CrossEntropy(), *([ClassCounts()] if cgr else []))
    if fresh:
        tasks["performance"] = MeasurePerformance(setup.model)
    rules: dict[str, Aggregator] = {"model": Mean(), "buffers": Mean()}
    if uad and disc.learns and disc_home == "server":
        rules["discriminator"] = Mean()
    return FedUFO(
        FromPrior(**vars(local)) if start == "prior" else local,
        rules,
        WorstHalf(setup.sampler, stage_two) if dynamic else setup.sampler,
        setup.schedule,
        tasks,
        grouped=uad or cgr,
        priors_from=priors_from,
        measure_from=stage_two if fresh else NEVER,
    )


def feduad(
    setup: Setup,
    *,
    uad_weight: UadWeight = 1.0,
    start: Start = "global",
    disc_classes: alignment.DiscClasses = "all",
    disc_home: alignment.DiscHome = "server",
    disc_train: alignment.DiscTrain = "round",
    disc_layers: alignment.DiscLayers = 2,
    disc_lr: alignment.DiscRate = 0.01,
    disc_momentum: alignment.DiscMomentum = 0.9,
    disc_epochs: alignment.DiscEpochs = 1,
) -> Method:
    """FedUFO's first stage in all rounds: features aligned by a discriminator, nothing else."""
    return fedufo(terms="uad", **locals())  # its settings are a part of FedUFO's, by the same names


def _check_words(given: dict[str, Any]) -> None:
    """A misspelt choice must not pass for the other one."""
    for name, kind in get_type_hints(fedufo).items():
        if get_origin(kind) is Literal and given[name] not in get_args(kind):
            allowed = ", ".join(get_args(kind))
            raise ConfigError(f"algorithm fedufo: {name} must be one of {allowed}, got {given[name]!r}")
