"""All measures of a run together: what is added to each round's line, to the end, and to the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accord.core.tensors import Trees
from accord.core.types import Replies, State
from accord.errors import ConfigError
from accord.measures.measure import MEASURES, Measure, Record
from accord.measures.predictions import Predictions, Vector
from accord.measures.scene import Ask, Final, Moment, Scene
from accord.measures.sites import Sites, sites_of


class Evaluator:
    """Made before the first round: what could not be measured is refused here.

    It keeps nothing between rounds but the predictions of the last state, which the end asks for once more.
    """

    def __init__(self, scene: Scene, extra: Sequence[Measure] = ()) -> None:
        taken = set(MEASURES)
        for measure in extra:
            if measure.name in taken:
                raise ConfigError(f"there are two measures called {measure.name!r}: give yours another name")
            taken.add(measure.name)
        self.scene = scene
        self.measures: list[Measure] = [*(m for m in MEASURES.values() if m.on(scene) and scene.admits(m)), *extra]
        self._own = [column.as_record() for measure in extra for column in measure.columns]
        for measure in self.measures:
            measure.check(scene)
        self._keep = frozenset(name for measure in self.measures for name in measure.reads)
        self._last: tuple[State, Predictions | None] | None = None

    @property
    def at_clients(self) -> bool:
        """Whether clients are to be handed their own test data."""
        return any(measure.at_clients for measure in self.measures)

    def round(self, round: int, old: State, new: State, replies: Replies, memory_of: Callable[[int], Trees]) -> Record:
        """What was measured in a round (counted from 0): all of it every so often and in the last one."""
        scene = self.scene
        due = (round + 1) % scene.every == 0 or round + 1 == scene.rounds
        predictions = self._predictions(new) if due else None
        if round + 1 == scene.rounds:
            self._last = new, predictions
        moment = Moment(round, old, new, replies, memory_of, predictions)
        record: Record = {}
        for measure in self.measures:
            if due or measure.every_round:
                record |= measure.round(scene, moment)
        return record

    def _predictions(self, state: State) -> Predictions | None:
        """Of the global model, where there is one."""
        return self.scene.judged(state, self._keep)

    def final(self, state: State, ask: Ask) -> Final:
        """What is looked at after the last round; `ask` is an exchange of which clients keep nothing."""
        known = self._last is not None and self._last[0] is state
        predictions = self._last[1] if known and self._last is not None else self._predictions(state)
        return Final(self.scene, state, ask, predictions)

    def end(self, final: Final) -> Record:
        """What is measured once, from the final state."""
        record: Record = {}
        for measure in self.measures:
            record |= measure.end(self.scene, final)
        return record

    def sites(self, final: Final) -> Sites | None:
        """The final state site by site; None where nothing was measured at the clients."""
        values: dict[str, Vector] = {}
        for measure in self.measures:
            values |= measure.sites(self.scene, final)
        return sites_of(self.scene.data, values, self.scene.labels) if values else None

    def summary(self, metrics: Sequence[Mapping[str, Any]], timings: Sequence[Mapping[str, Any]]) -> Record:
        """What the rounds come down to: the run's facts, every measure's share, bytes, seconds."""
        summary: Record = dict(self.scene.facts)
        for measure in self.measures:
            summary |= measure.summary(self.scene, metrics)
        headline = self.scene.problem.headline
        judged = not self.scene.algorithm.personal and summary.get(headline) is not None
        return {
            **summary,
            **({"columns": self._own} if self._own else {}),
            "judged_by": headline if judged else f"personal_{headline}",
            **{
                way: sum(record[way] + record.get(f"start_{way}", 0) for record in metrics)
                for way in ("bytes_up", "bytes_down")
            },
            **({"clock": metrics[-1]["clock"]} if metrics and "clock" in metrics[-1] else {}),
            "seconds": round(sum(v for row in timings for k, v in row.items() if k != "round"), 3),
        }
