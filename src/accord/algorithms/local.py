"""Local: no federation; every client trains its own model on its own data.

    client k:  w_k <- SGD on its own data, from its own w_k; nothing is sent

The floor a federation must beat. Kept by the client: its model. Its score is the personal accuracy; it has no
global model. Accuracy of the local models on the global test set is measured with evaluate.local_on_global.
"""

from __future__ import annotations

from dataclasses import dataclass

from accord.core.algorithm import Method, Predictor, Setup
from accord.core.tensors import Trees
from accord.core.types import State
from accord.parts.losses import CrossEntropy


@dataclass(frozen=True)
class _LocalOnly(Method):
    """A method whose server learns nothing."""

    def message(self, state: State) -> Trees:
        """Nothing: a client's first model is the one it is installed with."""
        return {"model": {}, "buffers": {}}

    def predictor(self, state: State) -> Predictor | None:
        """There is no global model."""
        return None


def local(setup: Setup) -> Method:
    """Every client alone."""
    everything = setup.model.init()
    names = frozenset(name for tree in everything for name in tree)
    task = setup.local(CrossEntropy(), personal=names)
    return _LocalOnly(task, {}, setup.sampler, setup.schedule)
