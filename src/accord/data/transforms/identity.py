"""No change at all."""

from __future__ import annotations

from accord.data.federated import Dataset, Environment, unchanged
from accord.data.transforms.registry import TRANSFORMS, Change


@TRANSFORMS.add("none")
def none(dataset: Dataset, clients: int, seed: int) -> Change:
    """Inputs as they are; one test environment, the test pool."""
    return Change(None, (Environment("test", unchanged),))
