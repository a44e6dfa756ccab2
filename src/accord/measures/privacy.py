"""What a run under differential privacy has spent of its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accord.measures.column import Column, number
from accord.measures.measure import Measure, Record, entry
from accord.measures.scene import Moment, Scene


@entry
class Epsilon(Measure):
    """Epsilon after the round, at the run's delta: the smaller, the less anybody learns of one client or sample."""

    name = "epsilon"
    columns = (Column("epsilon", "epsilon", ("epsilon",), number, "lower"),)

    def on(self, scene: Scene) -> bool:
        """Where there is a budget."""
        return scene.budget is not None

    def round(self, scene: Scene, moment: Moment) -> Record:
        """Of all rounds so far; one that was skipped counts as well."""
        assert scene.budget is not None
        return {self.name: scene.budget.spent(moment.round + 1)}

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """Of all rounds, and for what it holds."""
        assert scene.budget is not None
        return {**super().summary(scene, records), "privacy": scene.budget.facts()}
