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
- disc_hidden, disc_reads: D reads the D features and is as wide. The report's (Biswas and Oschatz) is 320-200-100 on
  the flattened maps: disc_reads = "maps", disc_hidden = 200; its rate and momentum are disc_lr and disc_momentum.
- disc_train: disc_epochs after the posterior ("round"), or one step after each of the model's ("batch").
- start: the posterior starts from w_t ("global"), the reading under which CGL alone costs nothing, or from
  the client's own prior ("prior").
- kl: KL(y^ || y~) as printed ("reverse"), or KL(y~ || y^) ("forward").
- stage_one_rounds: not given; half of the run where UAD and a consensus term are both on, otherwise none.
- Local performance: accuracy of w_t on the client's own training samples before it trains (no test data), as of
  its last visit ("stale"). With performance_share it is measured on that share, which no model trains on (D, which
  needs no labels, and the class counts still see it). Measured anew on everyone ("fresh"), the worst are clients of
  the same class, which fill half the group with it: on MNIST, ten of a hundred clients a round, that fell below
  FedAvg.
- The server averages; the paper's "SGD in client and server" is not read as a server step of 0.01.
- D has the local weight decay, its own momentum and no clipping. Frozen models run in evaluation mode.
- A client asked without a group (personal accuracy at the end, unseen clients) has no CGR and leaves D alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

import accord.authoring as fl
from accord.algorithms.fedufo.alignment import Discriminator, MapAlignment, UniformAlignment
from accord.algorithms.fedufo.consensus import Divergence, GlobalConsensus, GroupConsensus
from accord.algorithms.fedufo.peers import ClassCounts, FromPrior, Peers, group_message, width
from accord.algorithms.fedufo.performance import MeasurePerformance, Performance, Withheld, WorstHalf, measured
from accord.algorithms.fedufo.settings import AlignmentSettings, Readings, Settings, read
from accord.core.algorithm import put
from accord.core.optim import SGD
from accord.core.task import Task
from accord.core.tensors import ordered_trees
from accord.core.types import Exchange

NEVER = 1 << 62  # a round that does not come


@dataclass(frozen=True)
class FedUFO(fl.Method):
    """A method whose rounds may begin with a measurement of every client and an exchange of priors."""

    grouped: bool = False  # whether clients are told who else takes part
    priors_from: int = NEVER
    measure_from: int = NEVER

    @property
    def needs_each(self) -> str:
        sends_on = "sends each client's model on to its group" if self.priors_from < NEVER else ""
        return sends_on or ("chooses clients by each one's accuracy" if self.measure_from < NEVER else "")

    def round(self, state: fl.State, world: fl.World, exchange: Exchange) -> tuple[fl.State, fl.Replies]:
        """Measure, choose, exchange priors, train posteriors, average."""
        model: fl.Trees = {"model": state["model"], "buffers": state["buffers"]}
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


@fl.method("papers")
def fedufo(setup: fl.Setup, settings: Settings) -> fl.Method:
    """Align features by a discriminator, predictions with the group and the global model."""
    return _method(setup, read(setup, settings))


@fl.method("papers")
def feduad(setup: fl.Setup, settings: AlignmentSettings) -> fl.Method:
    """FedUFO's first stage in all rounds: features aligned by a discriminator, nothing else."""
    return _method(setup, read(setup, Settings(terms="uad", **vars(settings))))


def _method(setup: fl.Setup, reading: Readings) -> fl.Method:
    disc = _discriminator(setup, reading)
    target = reading.cgr_target if reading.cgr else None
    peers = Peers(reading.uad and disc.learns, target, reading.stage_two, reading.disc_reads)
    always = peers.features or reading.start == "prior"
    priors_from = 0 if always else reading.stage_two if reading.cgr else NEVER
    tasks: dict[str, Task] = {}
    if priors_from < NEVER:
        tasks["prior"] = setup.local(fl.SampleLoss(), *_withheld(reading), *([ClassCounts()] if reading.cgr else []))
    if reading.fresh:
        tasks["performance"] = MeasurePerformance(setup.model, share=reading.performance_share)
    rules = {"model": fl.Mean(), "buffers": fl.Mean()}
    if reading.uad and disc.learns and disc.home == "server":
        rules["discriminator"] = fl.Mean()
    kind = FromPrior if reading.start == "prior" else fl.LocalTraining
    return setup.method(
        setup.local(*_parts(setup, reading, disc, peers), kind=kind),
        rules,
        kind=FedUFO,
        sampler=WorstHalf(setup.sampler, reading.stage_two) if reading.dynamic else setup.sampler,
        extra_tasks=tasks,
        grouped=reading.grouped,
        priors_from=priors_from,
        measure_from=reading.stage_two if reading.fresh else NEVER,
    )


def _discriminator(setup: fl.Setup, reading: Readings) -> Discriminator:
    return Discriminator(
        reading.disc_classes,
        reading.disc_home,
        reading.disc_train,
        reading.disc_layers,
        reading.disc_hidden,
        reading.disc_lr,
        SGD(reading.disc_momentum, setup.optimizer.weight_decay),
        replace(setup.plan, epochs=reading.disc_epochs, steps=0),
    )


def _parts(setup: fl.Setup, reading: Readings, disc: Discriminator, peers: Peers) -> list[fl.Part]:
    """Those of the terms that are on, in the order their losses are added."""
    divergence = Divergence(reading.kl, reading.kl_reduction)
    consensus = GlobalConsensus(reading.cgl_weight, divergence, reading.stage_two)
    alignment = MapAlignment if reading.disc_reads == "maps" else UniformAlignment
    listed: list[tuple[bool, fl.Part]] = [
        (True, fl.SampleLoss()),
        (reading.grouped, peers),
        (reading.uad, alignment(peers, reading.uad_weight, disc, width(setup.model, reading.disc_reads))),
        (reading.cgr, GroupConsensus(peers, reading.cgr_weight, divergence)),
        (reading.cgl, consensus),
        (reading.dynamic, Performance(not reading.fresh, reading.performance_share, consensus)),
    ]
    return [*_withheld(reading), *(part for on, part in listed if on)]


def _withheld(reading: Readings) -> list[fl.Part]:
    return [Withheld(reading.performance_share)] if reading.performance_share else []
