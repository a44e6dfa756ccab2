"""Your own method in one file: FedAvg whose clients also keep their outputs near the received model's.

python examples/own_method.py
"""

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

import accord
from accord.algorithms.fedavg import averaging
from accord.core.algorithm import Method, Setup
from accord.core.task import Part, View
from accord.settings import NOT_NEGATIVE


@dataclass(frozen=True)
class StayNear(Part):
    """weight * KL(received model's prediction || trained model's), on the client's own batch."""

    weight: float

    def loss(self, view: View) -> Tensor:
        """The received model is frozen, so it goes through `reference`."""
        received = view.model.reference(view.job.shared["model"], view.job.shared["buffers"], view.batch.x)
        teacher = received.logits.detach().softmax(1)
        return self.weight * F.kl_div(view.out.logits.log_softmax(1), teacher, reduction="batchmean")


def fednear(setup: Setup, *, weight: Annotated[float, NOT_NEGATIVE, "strength"] = 0.3) -> Method:
    """FedAvg near the received model."""
    return averaging(setup, StayNear(weight))


if __name__ == "__main__":
    accord.ALGORITHMS.add("fednear")(fednear)
    config = accord.load_config(
        sets=["algorithm.name=fednear", "algorithm.weight=0.5", "partition.alpha=0.1", "rounds=10"]
    )
    outcome = accord.run(config)
    print(f"accuracy {outcome.summary['accuracy']:.3f}, everything in {outcome.folder}")
