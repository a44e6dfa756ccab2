"""How good the clients' own models are for the clients themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from torch import Tensor

from accord.measures.column import Column
from accord.measures.measure import Measure, Record, entry
from accord.measures.predictions import Vector
from accord.measures.scene import Final, Moment, Scene
from accord.measures.spread import spread_record
from accord.settings import Setting

Measured = Mapping[int, Mapping[str, Tensor]]  # by client
AT_THE_END = {"personal_accuracy_before": "personal_before", "personal_accuracy": "personal_correct"}


@entry
class Personal(Measure):
    """Accuracy of the clients' own models on their own test data: in every round, and of all clients at the end.

    At the end every client trains once more from the final state, and is judged before and after; nothing is kept.
    """

    name = "personal"
    setting = Setting(
        "personal",
        Literal["auto"] | bool,
        "auto",
        doc="accuracy of the clients' own models on their own test data; auto: for methods that are about them",
    )
    columns = (
        Column("personal_before", "personal before %", ("personal_accuracy_before", "mean")),
        Column("personal_accuracy", "personal %", ("personal_accuracy", "mean")),
        Column("personal_best", "best personal %", ("personal_accuracy", "best"), compared=False),
        Column("personal_worst", "worst personal %", ("personal_accuracy", "worst"), compared=False),
        Column("personal_std", "personal std %", ("personal_accuracy", "std"), better="lower", compared=False),
    )
    every_round = True
    at_clients = True

    def on(self, scene: Scene) -> bool:
        """As it is set; `auto` leaves it to the method."""
        value = scene.settings.get("personal", "auto")
        return scene.algorithm.personal if value == "auto" else bool(value)

    def round(self, scene: Scene, moment: Moment) -> Record:
        """Of the round's clients, after their training."""
        replies = moment.replies
        measured = {k: result.metrics for k, result in zip(replies.ids, replies.results, strict=True)}
        return {"personal": _spread(measured, "personal_correct")} if measured else {}

    def end(self, scene: Scene, final: Final) -> Record:
        """Of all clients, before and after one more round of their training."""
        return {name: _spread(final.trained, count) for name, count in AT_THE_END.items()}

    def sites(self, scene: Scene, final: Final) -> dict[str, Vector]:
        """Each client's own."""
        columns = {}
        for name, count in AT_THE_END.items():
            columns[name] = np.full(len(scene.data), np.nan)
            for client, (share, _) in _shares(final.trained, count).items():
                columns[name][client] = share
        return columns

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """All of it is measured at the end."""
        return {}


def _shares(measured: Measured, count: str) -> dict[int, tuple[float, int]]:
    """Right answers as a share of a client's test samples, and how many these are; no entry for one without any."""
    return {
        client: (float(sums[count]) / int(sums["personal_examples"]), int(sums["personal_examples"]))
        for client, sums in measured.items()
        if count in sums
    }


def _spread(measured: Measured, count: str) -> Record:
    """Over the clients that have test samples."""
    shares = _shares(measured, count)
    return spread_record(*map(np.array, zip(*shares.values(), strict=True))) if shares else {}
