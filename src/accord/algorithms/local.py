"""Local: no federation; every client trains its own model on its own data.

    client k:  w_k <- SGD on its own data, from its own w_k; nothing is sent

The floor a federation must beat. Kept by the client: its model. Its score is the personal accuracy; it has no
global model. Accuracy of the local models on the global test set is measured with evaluate.local_on_global.
"""

from __future__ import annotations

from dataclasses import dataclass

import accord.authoring as fl


@dataclass(frozen=True)
class LocalOnly(fl.Method):
    """A method whose server learns nothing."""

    def message(self, state: fl.State) -> fl.Trees:
        """Nothing: a client's first model is the one it is installed with."""
        return {"model": {}, "buffers": {}}


@fl.method("ends", personal=True)
def local(setup: fl.Setup) -> fl.Method:
    """Every client alone."""
    everything = setup.model.init()
    names = frozenset(name for tree in everything for name in tree)
    task = setup.local(fl.SampleLoss(), personal=names)
    return setup.method(task, {}, kind=LocalOnly, has_global_model=False)
