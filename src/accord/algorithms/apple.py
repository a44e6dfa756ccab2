"""APPLE: every client learns how much of everyone's core model goes into its own personal model.

Luo, Wu. "Adapt to adaptation: learning personalization for cross-silo federated learning". IJCAI 2022,
arXiv 2110.08394.

    c_j = client j's core model, p_i in R^K = client i's directed relationships, p_0 = (n_j / n)_j
    client i:  w_i = sum_j p_ij c_j,   min over c_i and p_i   CE(w_i) + mu lambda(r) |p_i - p_0|^2
               lambda(r) = eps^(r / L) or (cos(pi r / L) + 1) / 2 in round r (from 0), and 0 from round L on
    server:    keeps all c_j, replaces those of the round's clients

Sent: all K core models down (K times FedAvg) with everyone's share of the samples, c_i up. Kept by the client: p_i,
never sent, and its running statistics. Everyone sees everyone's core model; there is no global model, the score is
the personal accuracy of w_i.
Defaults: mu = 0.1, L = horizon * rounds with horizon = 0.1, the exponential lambda with eps = 0.001, p's rate 0.001.
Choices: p takes plain SGD steps with a constant rate, c_i the shared local optimizer's. All models are downloaded
every round (the paper can limit their number), core models start alike, and running statistics of batch norm are not
mixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

import accord.authoring as fl
from accord.core.algorithm import Predictor
from accord.core.disclosure import Declared, Disclosure
from accord.core.model import Out
from accord.core.optim import Optimizer
from accord.core.types import Result

Decay = Literal["exponential", "cosine"]
RELATION = "relation"
INNER = fl.Range(above=0, below=1)


def loosening(round: int, horizon: float, decay: Decay, eps: float) -> float:
    """lambda(r)."""
    if round >= horizon:
        return 0.0
    return eps ** (round / horizon) if decay == "exponential" else (math.cos(math.pi * round / horizon) + 1) / 2


@dataclass(frozen=True)
class Rates:
    """The shared optimizer for core models; plain SGD with a rate of its own for the relationships."""

    stacks: ClassVar[bool] = False
    cores: Optimizer
    relation_lr: float

    @property
    def weight_decay(self) -> float:
        return self.cores.weight_decay

    def init(self, params: fl.Tree) -> fl.Trees:
        """Nothing to remember for the relationships."""
        return {} if RELATION in params else self.cores.init(params)

    def update(self, params: fl.Tree, grads: fl.Tree, state: fl.Trees, lr: Tensor) -> None:
        """One step in place."""
        if RELATION in params:
            params[RELATION].sub_(grads[RELATION], alpha=self.relation_lr)
        else:
            self.cores.update(params, grads, state, lr)


@dataclass(frozen=True)
class Relationships(fl.Part):
    """Core models at the server, p_i at the client, and the mixture of both."""

    needs_each = "keeps each client's core model and sends all of them to everyone"
    problems = ("any",)
    mu: float
    horizon: float  # L, in rounds
    decay: Decay
    eps: float

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """[K, ...] equal core models, and p_0."""
        count = len(world.sizes)
        cores = {name: t.expand(count, *t.shape).clone() for name, t in model.init()[0].items()}
        share = torch.from_numpy(world.sizes / world.sizes.sum())
        return {"cores": cores, "share": {RELATION: share.to(model.device, torch.get_default_dtype())}}

    def send(self, state: fl.State) -> fl.Trees:
        return {"cores": state["cores"], "share": state["share"]}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """The clients' new core models take the place of their old ones."""
        rows = torch.tensor(replies.ids, device=state["share"][RELATION].device)
        sent = replies.stacked("core")
        return {"cores": {name: old.index_copy(0, rows, sent[name]) for name, old in state["cores"].items()}}

    def memory(self, job: fl.Job) -> fl.Trees:
        """p_i = p_0."""
        return {RELATION: job.shared["share"]}

    def trainable(self, job: fl.Job) -> fl.Trees:
        return {RELATION: job.memory[RELATION]}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """Which relationship is the client's to itself, and lambda of the round."""
        share = job.shared["share"][RELATION]
        own = torch.zeros_like(share)
        own[int(job.info["client"])] = 1
        pull = self.mu * loosening(int(job.info["round"]), self.horizon, self.decay, self.eps)
        return {"own": own, "pull": share.new_tensor(pull)}

    def mixed(self, job: fl.Job, carry: fl.Carry, params: fl.Trees) -> fl.Tree:
        """w_i: the others' cores as received, the client's as it is now."""
        relation, own = params[RELATION][RELATION], carry[self.name]["own"]
        others, self_share = relation * (1 - own), (relation * own).sum()
        cores = job.shared["cores"]
        return {name: torch.tensordot(others, cores[name], 1) + self_share * c for name, c in params["model"].items()}

    def forward(self, model: fl.Model, job: fl.Job, carry: fl.Carry, params: fl.Trees, batch: fl.Batch) -> Out:
        """The personal model on the batch."""
        return model.train(self.mixed(job, carry, params), carry["buffers"], batch.x)

    def loss(self, view: fl.View) -> fl.Term | None:
        """mu lambda(r) |p_i - p_0|^2."""
        if self.mu == 0 or self.horizon == 0:
            return None
        moved = view.params[RELATION][RELATION] - view.job.shared["share"][RELATION]
        pull: Tensor = view.carry[self.name]["pull"]
        return view.whole(pull * moved.square().sum())

    def discloses(self) -> Declared:
        return {"core": Disclosure.UPDATE}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        """c_i travels under a name of its own, as it is no version of a common model; p_i stays."""
        return {"core": carry["train"]["model"], "model": {}}, {RELATION: carry["train"][RELATION]}

    def judged(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Tree, fl.Tree]:
        return self.mixed(job, carry, carry["train"]), carry["buffers"]


@dataclass(frozen=True)
class CoreTraining(fl.LocalTraining):
    """Local training that starts from the client's own core model."""

    def discloses(self) -> Declared:
        """The core travels in the place of the model."""
        return {tree: kind for tree, kind in super().discloses().items() if tree != "model"}

    def begin(self, job: fl.Job) -> fl.Carry:
        """Its row of all core models."""
        row = int(job.info["client"])
        core = {name: cores[row] for name, cores in job.shared["cores"].items()}
        return super().begin(job._replace(shared={**job.shared, "model": core}))


@dataclass(frozen=True)
class Apple(fl.Method):
    """A method whose server keeps a model per client and none for all."""

    def message(self, state: fl.State) -> fl.Trees:
        """The core models; running statistics start as installed and stay with the client."""
        return {**super().message(state), "model": {}, "buffers": {}}

    def local_predictor(self, state: fl.State, result: Result) -> Predictor:
        """The client's mixture of the core models as they are after the round."""
        relation, buffers = result.memory[RELATION][RELATION], self.with_own(state, result)["buffers"]
        mixed = {name: torch.tensordot(relation, cores, 1) for name, cores in state["cores"].items()}
        return lambda x: self.model.reference(mixed, buffers, x)


@fl.method("personal")
def apple(
    setup: fl.Setup,
    *,
    mu: Annotated[float, fl.AtLeast(0), fl.Search(1e-3, 1.0, log=True), "pull of the relationships to p_0"] = 0.1,
    relation_lr: Annotated[float, fl.AtLeast(0), fl.Search(1e-4, 0.1, log=True), "the relationships' rate"] = 0.001,
    horizon: Annotated[
        float, fl.Range(low=0, high=1), fl.Search(0.05, 0.5), "share of the rounds after which the pull ends"
    ] = 0.1,
    decay: Annotated[Decay, "how the pull loosens"] = "exponential",
    eps: Annotated[float, INNER, "lambda at the end of the exponential decay"] = 0.001,
) -> fl.Method:
    """Personal mixtures of everyone's core models."""
    mixing = Relationships(mu, horizon * setup.rounds, decay, eps)
    statistics = frozenset(setup.model.init()[1])
    rates = Rates(setup.optimizer, relation_lr)
    shared = {"optimizer": rates, "personal": statistics, "keeps_optimizer": False}
    task = setup.local(fl.SampleLoss(), mixing, kind=CoreTraining, **shared)
    return setup.method(task, {}, kind=Apple, has_global_model=False)
