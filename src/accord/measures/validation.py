"""Accuracy on what the clients held out of their training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accord.measures.column import leading
from accord.measures.measure import Measure, Record, entry
from accord.measures.scene import Moment, Scene


@entry
class Validation(Measure):
    """Accuracy, or the problem's own number, on all clients' validation data, every sample counting the same."""

    name = "validation"
    columns = leading("validation_{}", "validation", ("validation_{}",), compared=False)

    def round(self, scene: Scene, moment: Moment) -> Record:
        """The mean, where something was held out (partition.validation)."""
        clients = moment.predictions.clients("validation") if moment.predictions is not None else None
        if clients is None:
            return {}
        mean = float(np.nansum(clients.means * clients.sizes) / clients.sizes.sum())
        return {f"validation_{scene.problem.headline}": scene.problem.reading(mean)}

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """The last one."""
        name = f"validation_{scene.problem.headline}"
        values = [record[name] for record in records if name in record]
        return {name: values[-1]} if values else {}
