"""FedRANE's settings as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import accord.authoring as fl
from accord.aggregate import Weighting
from accord.aggregate.nash import Scale
from accord.algorithms.fedrane.relations import Similarity
from accord.models.around.attention import Attention
from accord.models.around.graph import GraphMode

Evaluation = Literal["none", "batch", "support"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of the augmentation, of what is judged, and of the bargain."""

    lra: Annotated[bool, "augment samples with their neighbours in the batch"] = True
    gne: Annotated[bool, "aggregate by Nash bargaining instead of averaging"] = True
    graph: Annotated[GraphMode, "how the graph is inferred"] = "official"
    lambda_b: Annotated[
        float, fl.Range(above=0), fl.Search(0.01, 1.0, log=True), "weight of the graph's low-rank term"
    ] = 0.1
    lambda_cd: Annotated[float, fl.AtLeast(0), fl.Search(0.0, 1.0), "weight of the contrastive term"] = 0.2
    tau: Annotated[float, fl.Range(above=0), fl.Search(0.1, 1.0), "temperature of the contrastive term"] = 0.8
    similarity: Annotated[Similarity, "similarity in the contrastive term"] = "pearson"
    symmetric: Annotated[bool, "contrast both views, not only the plain one"] = True
    hops: Annotated[int, fl.AtLeast(1), "steps of message passing"] = 1
    attention: Annotated[Attention, "how neighbours are weighed: as the paper, or its published code"] = "dot"
    heads: Annotated[int, fl.AtLeast(1), "heads of gat"] = 2
    edge_weight: Annotated[bool, "multiply the attention by the graph's edges"] = True
    top_k: Annotated[int, fl.AtLeast(0), "strongest neighbours kept; 0: all"] = 0
    residual: Annotated[bool, "add the message to the sample's own features"] = True
    eps: Annotated[float, fl.Range(above=0), "added to lengths in the Pearson correlation"] = 0.01
    evaluation: Annotated[Evaluation, "what is judged with a sample; support: personal only"] = "batch"
    graph_size: Annotated[int, fl.AtLeast(2), "samples in one graph of the evaluation"] = 128
    scale: Annotated[Scale, "length of the bargained step"] = "avg-norm"
    power: Annotated[Weighting, "bargaining power: by samples, or every client alike"] = "examples"
    radius: Annotated[float, fl.AtLeast(0), "length under scale = 'radius'; 0: the number of clients"] = 0.0
    cap: Annotated[
        float, fl.AtLeast(1), fl.Search(1.0, 4.0), "largest sum of the weights under avg-norm; FedAvg: 1"
    ] = 2.0
    frozen_head: Annotated[bool, "unit features and a frozen orthonormal head"] = False
