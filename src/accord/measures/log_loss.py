"""The cross-entropy, as a metric with a spread over clients."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from accord.measures.metric import metric


@metric(
    "log_loss",
    better="lower",
    problems=("classification",),
    doc="mean of - log p(label), in nats",
)
def log_loss(logits: Tensor, labels: Tensor) -> float:
    """The loss of the test data, client by client."""
    return float(functional.cross_entropy(logits.double(), labels))
