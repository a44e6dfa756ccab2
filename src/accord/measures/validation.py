"""Accuracy on what the clients held out of their training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accord.measures.column import Column
from accord.measures.measure import Measure, Record, entry
from accord.measures.scene import Moment, Scene


@entry
class Validation(Measure):
    """Accuracy of the global model on all clients' validation data, every sample counting the same."""

    name = "validation"
    columns = (Column("validation_accuracy", "validation %", ("validation_accuracy",), compared=False),)

    def round(self, scene: Scene, moment: Moment) -> Record:
        """The mean, where something was held out (partition.validation)."""
        clients = moment.predictions.clients("validation") if moment.predictions is not None else None
        if clients is None:
            return {}
        return {"validation_accuracy": float(np.nansum(clients.accuracies * clients.sizes) / clients.sizes.sum())}

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """The last one."""
        accuracies = [record["validation_accuracy"] for record in records if "validation_accuracy" in record]
        return {"validation_accuracy": accuracies[-1]} if accuracies else {}
