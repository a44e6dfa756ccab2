"""FedNTD: the global model's beliefs about the classes that are not the sample's own are preserved.

Lee, Jeong, Shin, Bae, Yun. "Preservation of the global knowledge by not-true distillation in federated
learning". NeurIPS 2022, arXiv 2106.03097.

    client k:  min_w  CE(w) + beta tau^2 mean_i KL( softmax(g_i / tau) || softmax(l_i / tau) )
               g_i, l_i: logits of the received and of the trained model on sample i, its true class left out
    server:    as FedAvg

Sent: as FedAvg; the teacher is the received model, in evaluation mode, run once per client and round over the
client's samples, or over its batches where local.steps touches only some of them. Defaults: beta = 1, tau =
1; beta = 0.1 is also common. beta = 0 is FedAvg. Where another part mixes samples (Mixup), the divergence is
mixed like the labels: l KL(y_i left out) + (1 - l) KL(y_j left out), with the teacher run on the mixed
samples in every step.
"""

from __future__ import annotations

from typing import Annotated

from accord.aggregate.mean import Weighting
from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.parts import distill


def fedntd(
    setup: Setup,
    *,
    beta: distill.Beta = 1.0,
    tau: distill.Tau = 1.0,
    weight: Annotated[Weighting, "average by samples, or every client alike"] = "examples",
) -> Method:
    """Average models that kept the global model's beliefs about other classes."""
    return averaging(setup, distill.fedntd(setup, beta=beta, tau=tau), weight=weight)
