"""FedRANE: local relational augmentation (LRA) and a global Nash equilibrium (GNE).

Liao, Chen, Zhou, Zhu, Wang, Hu, Liu, Tan, Zheng. "Joint local relational augmentation and global Nash equilibrium
for federated learning with non-IID data". ACM Multimedia 2023, arXiv 2308.11646.

    client k:  Z = features of the batch;  A = a graph over its samples from their Pearson correlations
               Z~ = attentive message passing over A;   min CE(head(Z~), y) + lambda_CD L_CD(Z, Z~)
    server:    D_k = w_k - w_t,  p > 0 with (G^T G p)_k = 1 / p_k,  w_{t+1} = w_t + c sum_k p_k D_k

Equations: `graph` and `relations` in this folder, `accord.aggregate.nash`. lra = false is the paper's w/o-LRA,
gne = false its w/o-GNE (average by samples); without both it is FedAvg.

Sent: the model and the tree `relations` (3 D^2 numbers a hop) down and up; n_k up. Reveals what FedAvg does. All
uploaded parameters bargain together; buffers are averaged by samples. Rounds without an agreement take FedAvg's
step and are counted: `server.nash_fallbacks` in metrics.jsonl.

A prediction depends on the other samples of its graph. `evaluation` says what is judged with a sample: `batch`,
others of the test pool, in graphs of `graph_size` (accuracy depends on the size: report it); `none`, nothing, the head
on Z (the authors' code, though the head was trained on Z~ only); `support`, graph_size - 1 training samples of the
client and no other test sample. The server has no training samples, and features of samples would reveal far more
than models do, so `support` is for personal accuracy, and the global model is then judged as `batch`. One sample
alone: Z~ = Z. The pool is judged in one fixed random order (where clients have transforms, the samples of all clients):
data sets often lie sorted by class, and a graph of one class would give the class away. The other one of `batch` and
`none` is recorded too, under `readings` in metrics.jsonl. A client that judges itself (personal accuracy) has only its
own samples: its graphs have its classes.

Where the paper is silent or cannot be followed (defaults were chosen in small trials and are not tuned):
- `residual`: h + message. As printed, A_ii = 0 drops a sample's own features, and the model hardly learns.
- `edge_weight`: A multiplies the attention. As printed it is only a mask, and a dense one, so the graph would change
  nothing. `top_k` keeps the strongest neighbours only.
- `graph`: `official`, one inverse as in the authors' code; `ridge` and `lowrank` solve the paper's problem, the
  latter with a closed form that is a minimiser (the printed one is not) at many times the cost. Not differentiated.
- The contrast has the rows of both views as anchors, as in the authors' code (`symmetric` = false: Z only).
- The step: Algorithm 1's sign (w - G p) is a slip. p has no length of its own: the paper names a radius K, which
  diverges; its code divides by sum(p), which gives short deviations, those of small clients, most of the weight and
  shortens the step. `avg-norm` takes FedAvg's length, the weights summing to at most `cap`; bargaining power by
  samples is the default.
- `frozen_head`: unit features and a frozen orthonormal head, in the authors' code but not in the paper. It bears the
  paper's lr 0.5, which the trainable head does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from torch import Tensor, nn

import accord.authoring as fl
from accord.aggregate.nash import Nash
from accord.algorithms.fedrane.relations import Relations
from accord.algorithms.fedrane.settings import Evaluation, Settings
from accord.core.algorithm import Aggregator, Predictor
from accord.core.types import Result
from accord.parts.heads import FixedHead, orthonormal_head


@dataclass(frozen=True)
class RelationalTraining(fl.LocalTraining):
    """Local training whose model is judged with the graph it was trained with."""

    relations: Relations = field(default_factory=Relations)
    evaluation: Evaluation = "batch"
    graph_size: int = 128

    def _personal_correct(self, job: fl.Job, carry: fl.Carry, *, before: bool) -> Tensor:
        if self.evaluation == "none":
            return super()._personal_correct(job, carry, before=before)
        data, trees = job.data, {**carry["train"], "buffers": carry["buffers"]}
        if self.evaluation == "batch":
            out = self.relations.together(self.model, trees, data.test_x, self.graph_size)
        else:
            out = self.relations.supported(self.model, trees, data.test_x, data.x, self.graph_size)
        return self.model.problem.score(out.logits, data.test_y).sum()


@dataclass(frozen=True)
class FedRANE(fl.Method):
    """The usual method, its global model judged with a graph, and without one."""

    judged_trees: ClassVar[tuple[str, ...]] = ("model", "buffers", "relations")

    @property
    def task(self) -> RelationalTraining:
        """The training task, which knows the graph."""
        assert isinstance(self.local, RelationalTraining)
        return self.local

    @property
    def judges_together(self) -> bool:
        return True

    def predictor(self, state: fl.State) -> Predictor:
        """The model with the module between its features and its head, or without it."""
        return self._plain(state) if self.task.evaluation == "none" else self._graphs(state)

    def readings(self, state: fl.State) -> Mapping[str, Predictor]:
        """The other one."""
        return {"batch": self._graphs(state)} if self.task.evaluation == "none" else {"none": self._plain(state)}

    def local_predictor(self, state: fl.State, result: Result) -> Predictor:
        """The client's model with its own module."""
        return self.predictor(self.with_own(state, result))

    def export(self, state: fl.State) -> nn.Module | None:
        """The averaged model, where it is judged without the module."""
        plain = self.task.evaluation == "none"
        return self.model.module(state["model"], state["buffers"]) if plain else None

    def _plain(self, state: fl.State) -> Predictor:
        return lambda x: self.model.reference(state["model"], state["buffers"], x)

    def _graphs(self, state: fl.State) -> Predictor:
        return lambda x: self.task.relations.together(self.model, state, x, self.task.graph_size)


@fl.method("papers")
def fedrane(setup: fl.Setup, settings: Settings) -> fl.Method:
    """Augment features by message passing within the batch, aggregate by bargaining."""
    if settings.gne and setup.num_clients < 2:
        raise fl.ConfigError("algorithm fedrane: a single client has nobody to bargain with; use more, or gne = false")
    if settings.frozen_head:
        setup = replace(setup, model=orthonormal_head(setup.model))
    local = _task(setup, settings)
    trained = ("model", "relations") if settings.lra else ("model",)
    rules: dict[str, Aggregator] = {tree: fl.Mean() for tree in (*trained, "buffers")}
    if settings.gne:
        bargain = Nash(trained[1:], settings.scale, settings.power, settings.radius, settings.cap)
        rules = {"model": bargain, "buffers": fl.Mean()}
    return setup.method(local, rules, kind=FedRANE if settings.lra else fl.Method)


def _task(setup: fl.Setup, settings: Settings) -> fl.LocalTraining:
    head = (FixedHead(),) if settings.frozen_head else ()
    frozen = frozenset(setup.model.head_names) if settings.frozen_head else frozenset()
    if not settings.lra:
        return setup.local(fl.SampleLoss(), *head, frozen=frozen)
    _check_relations(setup)
    relations = Relations(
        settings.graph,
        settings.lambda_b,
        settings.eps,
        settings.hops,
        settings.edge_weight,
        settings.top_k,
        settings.residual,
        settings.lambda_cd,
        settings.tau,
        settings.similarity,
        settings.symmetric,
    )
    judged = {"relations": relations, "evaluation": settings.evaluation, "graph_size": settings.graph_size}
    return setup.local(fl.SampleLoss(), relations, *head, kind=RelationalTraining, frozen=frozen, **judged)


def _check_relations(setup: fl.Setup) -> None:
    """What LRA cannot work with."""
    if setup.plan.batch_size == 1:
        raise fl.ConfigError(
            "algorithm fedrane: a batch of one sample has no neighbours; set local.batch_size to 2 or more "
            "(the paper: 128) or lra = false"
        )
    features = setup.model.num_features
    if features < 2:
        raise fl.ConfigError(
            f"algorithm fedrane correlates the features of samples, but the model has {features} of them; use a "
            "model whose head reads a feature vector (see accord.models.adapt), or lra = false"
        )
