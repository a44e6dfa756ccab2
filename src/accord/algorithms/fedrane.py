"""FedRANE: local relational augmentation (LRA) and a global Nash equilibrium (GNE).

Liao, Chen, Zhou, Zhu, Wang, Hu, Liu, Tan, Zheng. "Joint local relational augmentation and global Nash equilibrium
for federated learning with non-IID data". ACM Multimedia 2023, arXiv 2308.11646.

    client k:  Z = features of the batch;  A = a graph over its samples from their Pearson correlations
               Z~ = attentive message passing over A;   min CE(head(Z~), y) + lambda_CD L_CD(Z, Z~)
    server:    D_k = w_k - w_t,  p > 0 with (G^T G p)_k = 1 / p_k,  w_{t+1} = w_t + c sum_k p_k D_k

Equations: `accord.parts.graph`, `accord.parts.relations`, `accord.aggregate.nash`. lra = false is the paper's w/o-LRA,
gne = false its w/o-GNE (average by samples); without both it is FedAvg.

Sent: the model and the tree `relations` (3 D^2 numbers a hop) down and up; n_k up. Reveals what FedAvg does. All
uploaded parameters bargain together; buffers are averaged by samples. Rounds without an agreement take FedAvg's
step and are counted: `server.nash_fallbacks` in metrics.jsonl.

A prediction depends on the rest of the batch. `evaluation` says what is judged with a sample: `batch`, the other
samples of a graph of `graph_size`, mixed by a fixed shuffle within each batch of the evaluation (accuracy depends on
the size: report it); `none`, nothing, the head on Z (the authors' code, though the head was trained on Z~ only);
`support`, graph_size - 1 training samples of the client and no other test sample. The server has no training
samples, and features of samples would reveal far more than models do, so `support` is for personal accuracy, and
the global model is then judged as `batch`. One sample alone: Z~ = Z.

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

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, get_args

from torch import Tensor

from accord.aggregate.mean import Mean, Weighting
from accord.aggregate.nash import Nash, Scale
from accord.core.algorithm import Aggregator, Method, Predictor, Setup
from accord.core.task import LocalTraining, Part
from accord.core.types import Carry, Job, Result, State
from accord.errors import ConfigError
from accord.parts.bounds import one_of, whole, within
from accord.parts.graph import GraphMode
from accord.parts.losses import CrossEntropy
from accord.parts.orthonormal import FixedHead, orthonormal_head
from accord.parts.relations import Relations, Similarity
from accord.settings import NOT_NEGATIVE, POSITIVE, AtLeast, Search

Evaluation = Literal["none", "batch", "support"]


@dataclass(frozen=True)
class RelationalTraining(LocalTraining):
    """Local training whose model is judged with the graph it was trained with."""

    relations: Relations = field(default_factory=Relations)
    evaluation: Evaluation = "batch"
    graph_size: int = 128

    def _personal_correct(self, job: Job, carry: Carry, *, before: bool) -> Tensor:
        if self.evaluation == "none":
            return super()._personal_correct(job, carry, before=before)
        data, trees = job.data, {**carry["train"], "buffers": carry["buffers"]}
        if self.evaluation == "batch":
            out = self.relations.together(self.model, trees, data.test_x, self.graph_size)
        else:
            out = self.relations.supported(self.model, trees, data.test_x, data.x, self.graph_size)
        return (out.logits.argmax(1) == data.test_y).sum().double()


@dataclass(frozen=True)
class FedRANE(Method):
    """The usual method, its global model judged with a graph."""

    def predictor(self, state: State) -> Predictor:
        """The model with the module between its features and its head."""
        task = self.local
        assert isinstance(task, RelationalTraining)
        return lambda x: task.relations.together(task.model, state, x, task.graph_size)

    def local_predictor(self, state: State, result: Result) -> Predictor:
        """The client's model with its own module."""
        return self.predictor(self.with_own(state, result))


def fedrane(
    setup: Setup,
    *,
    lra: Annotated[bool, "augment samples with their neighbours in the batch"] = True,
    gne: Annotated[bool, "aggregate by Nash bargaining instead of averaging"] = True,
    graph: Annotated[GraphMode, "how the graph is inferred"] = "official",
    lambda_b: Annotated[float, POSITIVE, Search(0.01, 1.0, log=True), "weight of the graph's low-rank term"] = 0.1,
    lambda_cd: Annotated[float, NOT_NEGATIVE, Search(0.0, 1.0), "weight of the contrastive term"] = 0.2,
    tau: Annotated[float, POSITIVE, Search(0.1, 1.0), "temperature of the contrastive term"] = 0.8,
    similarity: Annotated[Similarity, "similarity in the contrastive term"] = "pearson",
    symmetric: Annotated[bool, "contrast both views, not only the plain one"] = True,
    hops: Annotated[int, AtLeast(1), "steps of message passing"] = 1,
    edge_weight: Annotated[bool, "multiply the attention by the graph's edges"] = True,
    top_k: Annotated[int, AtLeast(0), "strongest neighbours kept; 0: all"] = 0,
    residual: Annotated[bool, "add the message to the sample's own features"] = True,
    eps: Annotated[float, POSITIVE, "added to lengths in the Pearson correlation"] = 0.01,
    evaluation: Annotated[Evaluation, "what is judged with a sample; support: personal only"] = "batch",
    graph_size: Annotated[int, AtLeast(2), "samples in one graph of the evaluation"] = 128,
    scale: Annotated[Scale, "length of the bargained step"] = "avg-norm",
    power: Annotated[Weighting, "bargaining power: by samples, or every client alike"] = "examples",
    radius: Annotated[float, NOT_NEGATIVE, "length under scale = 'radius'; 0: the number of clients"] = 0.0,
    cap: Annotated[float, AtLeast(1), Search(1.0, 4.0), "largest sum of the weights under avg-norm; FedAvg: 1"] = 2.0,
    frozen_head: Annotated[bool, "unit features and a frozen orthonormal head"] = False,
) -> Method:
    """Augment features by message passing within the batch, aggregate by bargaining."""
    within(POSITIVE, lambda_b=lambda_b, tau=tau, eps=eps)
    within(NOT_NEGATIVE, lambda_cd=lambda_cd, radius=radius)
    within(AtLeast(1), cap=cap)
    whole(AtLeast(1), hops=hops)
    whole(AtLeast(0), top_k=top_k)
    whole(AtLeast(2), graph_size=graph_size)
    one_of(get_args(GraphMode), graph=graph)
    one_of(get_args(Similarity), similarity=similarity)
    one_of(get_args(Evaluation), evaluation=evaluation)
    one_of(get_args(Scale), scale=scale)
    one_of(get_args(Weighting), power=power)
    if gne and setup.num_clients < 2:
        raise ConfigError("algorithm fedrane: a single client has nobody to bargain with; use more, or gne = false")
    if frozen_head:
        setup = replace(setup, model=orthonormal_head(setup.model))
    parts: tuple[Part, ...] = (FixedHead(),) if frozen_head else ()
    frozen = frozenset(setup.model.head_names) if frozen_head else frozenset()
    if lra:
        _check_relations(setup)
        setup = setup.coupled()
        relations = Relations(
            graph, lambda_b, eps, hops, edge_weight, top_k, residual, lambda_cd, tau, similarity, symmetric
        )
        local: LocalTraining = RelationalTraining(
            setup.model,
            (CrossEntropy(), relations, *parts),
            setup.optimizer,
            setup.plan,
            setup.clip,
            frozen,
            forward=relations.forward,
            keeps_optimizer=setup.keeps_optimizer,
            relations=relations,
            evaluation=evaluation,
            graph_size=graph_size,
        )
    else:
        local = setup.local(CrossEntropy(), *parts, frozen=frozen)
    trained = ("model", "relations") if lra else ("model",)
    rules: dict[str, Aggregator] = {tree: Mean() for tree in (*trained, "buffers")}
    if gne:
        rules = {"model": Nash(trained[1:], scale, power, radius, cap), "buffers": Mean()}
    kind = FedRANE if lra and evaluation != "none" else Method
    return kind(local, rules, setup.sampler, setup.schedule)


def _check_relations(setup: Setup) -> None:
    """What LRA cannot work with."""
    if setup.plan.batch_size == 1:
        raise ConfigError(
            "algorithm fedrane: a batch of one sample has no neighbours; set local.batch_size to 2 or more "
            "(the paper: 128) or lra = false"
        )
    found = setup.model.num_features
    if found < 2:
        raise ConfigError(
            f"algorithm fedrane correlates the features of samples, but the model has {found} of them; use a "
            "model whose head reads a feature vector (see accord.models.adapt), or lra = false"
        )
