"""How good the models are that the clients trained, on everyone's data."""

from __future__ import annotations

import numpy as np

from accord.measures.column import Column
from accord.measures.measure import Measure, Record, entry, switch
from accord.measures.scene import Moment, Scene
from accord.measures.spread import spread_record


@entry
class LocalOnGlobal(Measure):
    """Accuracy of every local model on the whole test pool, its personal parameters (if any) included."""

    name = "local_on_global"
    setting = switch("local_on_global", "accuracy of the clients' own models on the whole test set")
    columns = (Column("local_on_global", "local on global %", ("local_on_global", "mean")),)

    def round(self, scene: Scene, moment: Moment) -> Record:
        """The spread over the round's clients, where they train a model."""
        replies = moment.replies
        if not (replies.has("model") or replies.has("personal")):
            return {}
        accuracies = []
        for client, result in zip(replies.ids, replies.results, strict=True):
            whole = result._replace(memory=moment.memory_of(client))
            predictor = scene.algorithm.local_predictor(moment.new, whole)
            accuracies.append(scene.predictions(predictor).plain.right.mean())
        return {"local_on_global": spread_record(np.array(accuracies))}
