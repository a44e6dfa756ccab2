"""Your own method in one file: FedAvg whose clients also keep their outputs near the received model's.

python examples/own_method.py
"""

from dataclasses import dataclass
from typing import Annotated

import accord
import accord.authoring as fl


@dataclass(frozen=True)
class StayNear(fl.Part):
    """weight * KL(received model's prediction || trained model's), on the client's own batch."""

    weight: float

    def loss(self, view: fl.View) -> fl.Term:
        """The received model is frozen, so it goes through `reference`; `view.mean` leaves padding out."""
        received = view.model.reference(view.job.shared["model"], view.job.shared["buffers"], view.batch.x)
        teacher, ours = received.logits.detach().log_softmax(1), view.out.logits.log_softmax(1)
        return self.weight * view.mean((teacher.exp() * (teacher - ours)).sum(1))


@fl.method("client")
def fednear(setup: fl.Setup, *, weight: Annotated[float, fl.AtLeast(0), "strength"] = 0.3) -> fl.Method:
    """FedAvg near the received model."""
    return fl.averaging(setup, StayNear(weight))


if __name__ == "__main__":
    config = accord.load_config(
        sets=["algorithm.name=fednear", "algorithm.weight=0.5", "partition.alpha=0.1", "rounds=10"]
    )
    outcome = accord.run(config)
    print(f"accuracy {outcome.summary['accuracy']:.3f}, everything in {outcome.folder}")
