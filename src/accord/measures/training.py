"""Accuracy on what the clients train on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accord.measures.column import leading
from accord.measures.measure import Measure, Record, entry, switch
from accord.measures.scene import Moment, Scene


@entry
class Training(Measure):
    """Accuracy, or the problem's own number, of the global model on the training data of all clients that train."""

    name = "training"
    setting = switch("training", "accuracy of the global model on the clients' training data")
    columns = leading("training_{}", "training", ("training_{}",), compared=False)

    def round(self, scene: Scene, moment: Moment) -> Record:
        """The mean, every sample counting the same."""
        clients = moment.predictions.clients("train") if moment.predictions is not None else None
        if clients is None:
            return {}
        members = list(scene.members)
        means, sizes = clients.means[members], clients.sizes[members]
        mean = float((means[sizes > 0] * sizes[sizes > 0]).sum() / sizes.sum())
        return {f"training_{scene.problem.headline}": scene.problem.reading(mean)}

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """The last one."""
        name = f"training_{scene.problem.headline}"
        values = [record[name] for record in records if name in record]
        return {name: values[-1]} if values else {}
