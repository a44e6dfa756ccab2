"""Which trial is the best of its algorithm.

A trial is judged by the mean of the task's leading number (accuracy, RMSE) over the last fifth of its rounds; a
personal method, or one without a global model, by that of the clients' own models at the end. A trial that diverges, or
draws what its method refuses, is worse than all others, and one that was pruned is no candidate. The best is used for
the runs, the earlier one of two equals.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accord.config.toml import literal
from accord.core.methods import is_personal
from accord.errors import ConfigError
from accord.problems import Problem, headlines, leading
from accord.report.runs import read_metrics, read_summary
from accord.study.optimiser import last_fifth
from accord.study.trials import Trial


@dataclass(frozen=True)
class Choice:
    """What the search came to for one algorithm."""

    trial: int
    settings: Mapping[str, object]
    score: float | None  # None: every trial failed, and the settings stay as they are
    judged_by: str
    tried: Sequence[Mapping[str, Any]]
    texts: Sequence[str]

    @property
    def words(self) -> str:
        """What is printed about it."""
        if self.score is None:
            return f"all {len(self.tried)} trials failed; the settings stay as they are"
        settings = ", ".join(self.texts) or "the settings as they are"
        return f"trial {self.trial} of {len(self.tried)}: {settings}; validation {self.judged_by} {self.score:.4f}"

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Choice:
        """As `as_json` wrote it."""
        texts = [f"{key}={literal(value)}" for key, value in record["settings"].items()]
        return cls(**record, texts=texts)

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "trial": self.trial,
            "settings": dict(self.settings),
            "score": self.score,
            "judged_by": self.judged_by,
            "tried": list(self.tried),
        }


def best_of(trials: Sequence[Trial]) -> Choice:
    """The best of the finished trials of one algorithm."""
    best, highest, judged_by = trials[0], -math.inf, ""
    tried: list[dict[str, Any]] = []
    for trial in trials:
        record: dict[str, Any] = {"trial": trial.number, "settings": dict(trial.settings)}
        if trial.failure is not None:
            record |= {"score": None, "failed": trial.failure}
        elif trial.pruned is not None:
            record |= {"score": None, "pruned": trial.pruned}
        else:
            record["score"], judged_by = score(trial)
            value = _problem(judged_by).worth(record["score"])
            if value > highest:
                best, highest = trial, value
        tried.append(record)
    reached = _problem(judged_by).worth(highest) if math.isfinite(highest) else None
    return Choice(best.number, best.settings, reached, judged_by, tried, best.texts)


def score(trial: Trial) -> tuple[float, str]:
    """How good a trial was, and in what."""
    summary = read_summary(trial.folder)
    after = last_fifth(trial.config.rounds)
    records = [record for record in read_metrics(trial.folder) if record["round"] > after]
    name = leading(summary)
    values = [record[name] for record in records if name in record]
    if values and not is_personal(trial.config.algorithm.name):
        return statistics.fmean(values), name
    if summary.get(f"personal_{name}"):
        return float(summary[f"personal_{name}"]["mean"]), f"personal {name}"
    raise ConfigError(
        f"algorithm {trial.config.algorithm.name} has no global model to be tuned by: measure its personal {name} "
        "with --set evaluate.personal=true"
    )


def _problem(judged_by: str) -> Problem:
    return headlines()[judged_by.removeprefix("personal ")]
