"""How good the models are that the clients trained, on everyone's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accord.measures.column import leading, of_headline
from accord.measures.measure import Measure, Record, entry, switch
from accord.measures.scene import Moment, Scene
from accord.measures.spread import spread_record


@entry
class LocalOnGlobal(Measure):
    """Accuracy (or the problem's own number) of every local model on the test pool, over its environments.

    As of the global model, so that the two may stand side by side; personal parameters too.
    """

    name = "local_on_global"
    setting = switch("local_on_global", "accuracy of the clients' own models on the whole test set")
    columns = leading("local_on_global", "local on global", ("local_on_global", "mean"))

    def round(self, scene: Scene, moment: Moment) -> Record:
        """The spread over the round's clients, where they train a model."""
        replies = moment.replies
        if not (replies.has("model") or replies.has("personal")):
            return {}
        problem, values = scene.problem, []
        for client, result in zip(replies.ids, replies.results, strict=True):
            whole = result._replace(memory=moment.memory_of(client))
            predictor = scene.algorithm.local_predictor(moment.new, whole)
            means = scene.predictions(predictor).pool_means
            values.append(float(np.mean([problem.reading(score) for score, _ in means])))
        better = "higher" if problem.higher_is_better else "lower"
        return {of_headline(self.name, problem.headline): spread_record(np.array(values), better=better)}

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """The last one."""
        name = of_headline(self.name, scene.problem.headline)
        values = [record[name] for record in records if name in record]
        return {name: values[-1]} if values else {}
