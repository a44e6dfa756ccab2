"""What a run measures: after a round, after the last one, and what it all comes down to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accord.core.tensors import Trees
from accord.core.types import Exchange, Replies, State
from accord.engine import evaluate as judge
from accord.engine.federation import Federation
from accord.engine.summary import measure_drift, measure_local_models, personal_record, summarise
from accord.engine.unseen import check_unseen, unseen_curve

Record = dict[str, Any]


class Evaluator:
    """Judges a federation's models."""

    def __init__(self, federation: Federation, memory_of: Callable[[int], Trees | None]) -> None:
        self.federation, self.memory_of = federation, memory_of
        self.settings = federation.config.evaluate
        if self.settings.unseen_epochs:
            check_unseen(federation.algorithm, federation.data)

    @property
    def judges_personal_models(self) -> bool:
        """Whether clients need their own test data."""
        return self.settings.personal

    def round(self, round: int, old: State, new: State, replies: Replies) -> Record:
        record: Record = {}
        federation, settings = self.federation, self.settings
        if settings.personal and len(replies):
            record["personal"] = personal_record(replies)
        if (round + 1) % settings.every and round + 1 != federation.config.rounds:
            return record
        size, device, data = settings.batch_size, federation.device, federation.data
        predictor, together = federation.algorithm.predictor(new), federation.algorithm.judges_together
        if predictor is not None:
            record |= judge.evaluate_global(predictor, federation.judged, size, device, together=together)
            others = federation.algorithm.readings(new)
            if others:
                record["readings"] = {
                    name: judge.evaluate_global(other, federation.judged, size, device, together=together)
                    for name, other in others.items()
                }
            if settings.clients and len(data.test.order):
                own = judge.client_accuracies(predictor, federation.judged, "test", size, device, together=together)
                record["clients"] = judge.client_record(own, data.test.sizes)
            if len(data.validation.order):
                held = judge.client_accuracies(
                    predictor, federation.judged, "validation", size, device, together=together
                )
                sizes = data.validation.sizes
                record["validation_accuracy"] = float(np.nansum(held * sizes) / sizes.sum())
            if settings.map:
                record["map"] = judge.retrieval(predictor, federation.judged, size, device, together=together)
        if settings.drift and replies.has("model") and next(replies.each("model")):
            record["drift"] = measure_drift(old["model"], new["model"], replies)
        if settings.local_on_global and (replies.has("model") or replies.has("personal")):
            record["local_on_global"] = measure_local_models(
                federation.algorithm, new, replies, federation.judged, size, device
            )
        return record

    def end(self, state: State, ask: Exchange) -> Record:
        record: Record = {}
        federation = self.federation
        if self.settings.personal:
            # Every client trains once more from the final state and is judged on its own test data; nothing is kept.
            replies = ask("train", federation.facts.members, federation.algorithm.message(state))
            record["personal_accuracy_before"] = personal_record(replies, "personal_before")
            record["personal_accuracy"] = personal_record(replies)
        if epochs := self.settings.unseen_epochs:
            record["unseen"] = unseen_curve(
                federation.algorithm,
                state,
                federation.data,
                federation.key,
                federation.device,
                federation.config.rounds,
                epochs,
            )
        return record

    def summary(self, metrics: Sequence[Record], timings: Sequence[Record]) -> Record:
        return summarise(self.federation.config, metrics, timings, self.federation.data)
