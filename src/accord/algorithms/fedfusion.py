"""FedFusion: every client trains between its own feature maps and the global model's.

Yao, Huang, Wu, Zhang, Sun. "Federated learning with additional mechanisms on clients to reduce communication
costs". arXiv 1908.05891, 2019. First in "Towards faster and better federated learning: a feature fusion
approach". ICIP 2019.

A network is C(E(x)), E its convolutions. All share (E, F, C), F the operator that fuses two sets of maps:

    client k:  E_g = E_t, frozen;   min over E_l, F, C of  CE(C(F(E_l(x), E_g(x))), y),   from (E, F, C)_t
    conv:      F = W (E_l || E_g) + b per pixel, W [C, 2C]
    multi:     F = lambda * E_g + (1 - lambda) * E_l, lambda [C], unconstrained;   single: lambda one number
    server:    (E, F, C)_{t+1} = sum_k a_k (E_l, F, C)_k
               multi, single:  lambda_{t+1} = (1 - mu) sum_k a_k lambda_k + mu lambda_t

Sent: FedAvg's model, and the operator both ways (2C^2 + C, C or 1 numbers). lambda tells how much of the
global model a client wanted. E_g(x) is computed once per client and round, in evaluation mode, and kept if it
fits into `cache_mb`; otherwise, and when another part mixes the batch, in every step.

Evaluation needs two extractors. `prev`: E_l = E_{t+1} and E_g = E_t, as at the end of local training and in
the published code; the server keeps the previous model for it. `same`: E_g = E_l = E_{t+1}; multi and single
are then the plain network. `local`: the figure to read is the accuracy after local training
(evaluate.personal; there E_g = E_t in every mode), and the global model is judged as in `same`.
A client that joins later starts from (E, F, C)_t like the others.

Defaults: lambda_0 = 0, the local maps, and mu = 0.9, from the published code; the paper only names a moving
average. conv starts as the identity on the local maps; the published code draws it (`init` default), which
starts from a random mix of both. Clients are weighed by samples (the paper), alike in the published code.
With train_fusion = false, lambda_0 = 0 and the identity are FedAvg.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

import accord.authoring as fl
from accord.aggregate import EMA
from accord.core.algorithm import Aggregator, Predictor
from accord.core.disclosure import Declared, Disclosure
from accord.core.model import Out, Shape
from accord.core.types import Result
from accord.models.around.fusion import Fused, fuse
from accord.parts.lookup import gathered, in_chunks

Operator = Literal["conv", "multi", "single"]
Init = Literal["identity", "default"]
Evaluate = Literal["prev", "same", "local"]


def init_fusion(rng: np.random.Generator, operator: Operator, channels: int, init: Init, lambda0: float) -> fl.Tree:
    """The first values. conv: [I, 0], which passes the local maps through, or torch's default draw."""
    if operator != "conv":
        return {"lambda": torch.full((channels,) if operator == "multi" else (), float(lambda0))}
    if init == "identity":
        return {"bias": torch.zeros(channels), "weight": torch.eye(channels, 2 * channels)}
    bound = 1 / np.sqrt(2 * channels)  # of a convolution with 2C inputs per output
    weight, bias = (rng.uniform(-bound, bound, shape) for shape in ((channels, 2 * channels), channels))
    return {"bias": torch.from_numpy(bias), "weight": torch.from_numpy(weight)}


def map_shape(model: fl.Model) -> Shape:
    """[C, H, W] of one sample's maps, or an error for networks that have none."""
    shape: Shape | None = getattr(model.network, "map_shape", None)
    if shape is None or len(shape) != 3:
        raise fl.ConfigError(
            "fusion shape mismatch: algorithm fedfusion fuses maps of shape (channels, height, width), but "
            f"those of {type(model.network).__name__} are {shape or 'unknown'}; choose a convolutional model "
            "such as mcmahan_cnn, or name your own one's convolutions and show it a batch: "
            "accord.models.adapt(module, head=..., maps=..., example=...)"
        )
    return shape


def global_maps(model: fl.Model, job: fl.Job) -> Callable[[Tensor], Tensor]:
    """E_g: the received extractor, frozen."""
    return lambda x: model.maps(job.shared["model"], job.shared["buffers"], x)


@dataclass(frozen=True)
class Fusion(fl.Part):
    """The operator: held by the server, trained by the clients between the two extractors."""

    needs_each = ""
    problems = ("any",)
    operator: Operator
    init: Init
    lambda0: float
    train: bool
    cache_bytes: int
    keep_previous: bool

    def state(self, model: fl.Model, world: fl.World) -> fl.Trees:
        """The operator; before the first round the previous model is the initial one."""
        rng, channels = world.key.at("fusion"), map_shape(model)[0]
        first = init_fusion(rng, self.operator, channels, self.init, self.lambda0)
        params, buffers = model.init()
        like = next(iter(params.values()))
        previous: fl.Trees = {"previous": params, "previous_buffers": buffers} if self.keep_previous else {}
        return {"fusion": {name: value.to(like) for name, value in first.items()}, **previous}

    def send(self, state: fl.State) -> fl.Trees:
        return {"fusion": state["fusion"]}

    def update(self, state: fl.State, replies: fl.Replies, world: fl.World) -> fl.State:
        """What was the model becomes the previous one."""
        if not self.keep_previous:
            return {}
        return {"previous": state["model"], "previous_buffers": state["buffers"]}

    def trainable(self, job: fl.Job) -> fl.Trees:
        return {"fusion": job.shared["fusion"]} if self.train else {}

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """The global maps of all of the client's samples, if they fit."""
        width = next(iter(job.shared["model"].values())).element_size()
        fits = len(job.data.y) * prod(map_shape(model)) * width <= self.cache_bytes
        return {"maps": in_chunks(global_maps(model, job), job.data.x) if fits else None}

    def forward(self, model: fl.Model, job: fl.Job, carry: fl.Carry, params: fl.Trees, batch: fl.Batch) -> Out:
        """The trained network with fused maps."""
        maps = gathered(carry[self.name]["maps"], batch, global_maps(model, job))
        fusion = params["fusion"] if self.train else job.shared["fusion"]
        return model.train(params["model"], carry["buffers"], batch.x, lambda own: fuse(fusion, own, maps))

    def discloses(self) -> Declared:
        return {"fusion": Disclosure.UPDATE} if self.train else {}

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        return ({"fusion": carry["train"]["fusion"]} if self.train else {}), {}


@dataclass(frozen=True)
class FusionTraining(fl.LocalTraining):
    """Local training whose personal accuracy is that of the fused network, with the received model as E_g."""

    def _personal_correct(self, job: fl.Job, carry: fl.Carry, *, before: bool) -> Tensor:
        fusion = carry["train"].get("fusion", job.shared["fusion"])
        received, trained = global_maps(self.model, job), (carry["train"]["model"], carry["buffers"])

        def logits(x: Tensor) -> Tensor:
            maps = received(x)
            return self.model.reference(*trained, x, lambda own: fuse(fusion, own, maps)).logits

        return self.model.problem.score(in_chunks(logits, job.data.test_x), job.data.test_y).sum()


@dataclass(frozen=True)
class FusionMethod(fl.Method):
    """A method whose global model is fused with the one before it, or with itself."""

    judged_trees: ClassVar[tuple[str, ...]] = ("model", "buffers", "fusion", "previous", "previous_buffers")
    evaluate: Evaluate = "prev"

    def predictor(self, state: fl.State) -> Predictor:
        """The new model as E_l; E_g is the previous one (`prev`) or the new one too."""
        model, fusion, now = self.model, state["fusion"], (state["model"], state["buffers"])

        def prev(x: Tensor) -> Out:
            maps = model.maps(state["previous"], state["previous_buffers"], x)
            return model.reference(*now, x, lambda own: fuse(fusion, own, maps))

        def same(x: Tensor) -> Out:
            return model.reference(*now, x, lambda own: fuse(fusion, own, own))

        return prev if self.evaluate == "prev" else same

    def local_predictor(self, state: fl.State, result: Result) -> Predictor:
        """The client's network and operator, fused as the global ones are: with the received model, or itself."""
        return self.predictor(self.with_own(state, result))

    def export(self, state: fl.State) -> nn.Module:
        """Both extractors, the operator and the head."""
        now = self.model.module(state["model"], state["buffers"])
        before = self.evaluate == "prev"
        received = self.model.module(state["previous"], state["previous_buffers"]) if before else None
        return Fused(now, received, {name: t.cpu() for name, t in state["fusion"].items()}).eval()


@fl.method("papers")
def fedfusion(
    setup: fl.Setup,
    *,
    operator: Annotated[Operator, fl.Search(choices=("conv", "multi", "single")), "how maps are fused"] = "conv",
    init: Annotated[Init, "conv's first values: the local maps passed through, or drawn"] = "identity",
    lambda0: Annotated[
        float, fl.Range(low=0, high=1), "first lambda of multi and single: the global maps' share"
    ] = 0.0,
    mu: Annotated[float, fl.Range(low=0, below=1), "share of the old lambda the server keeps (multi, single)"] = 0.9,
    train_fusion: Annotated[bool, "train the operator; false keeps its first values"] = True,
    evaluate: Annotated[Evaluate, "global maps when testing: of the model before, or of itself"] = "prev",
    weight: fl.Weight = "examples",
    cache_mb: Annotated[int, fl.AtLeast(0), "keep a client's global maps up to this size"] = 512,
) -> fl.Method:
    """Average networks that were trained between their own feature maps and the global model's."""
    map_shape(setup.model)
    if operator == "conv" and lambda0 != 0:
        raise fl.ConfigError(
            f"lambda0 = {lambda0:g} is not used by operator 'conv', whose first values are set with init; "
            "set lambda0 to 0, or the operator to multi or single"
        )
    part = Fusion(operator, init, lambda0, train_fusion, cache_mb << 20, evaluate == "prev")
    local = setup.local(fl.SampleLoss(), part, kind=FusionTraining)
    mean = fl.Mean(weight)
    rules: dict[str, Aggregator] = {"model": mean, "buffers": mean}
    if train_fusion:
        rules["fusion"] = mean if operator == "conv" else EMA(mu, mean)
    return setup.method(local, rules, kind=FusionMethod, evaluate=evaluate)
