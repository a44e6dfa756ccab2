"""What a study came to, as objects: tables, curves, and the files beside the runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from accord.engine.files import write_atomic
from accord.figures import figure_of, judged_value, series
from accord.frames import frame_of
from accord.report.plots import curves
from accord.report.tables import Row, aggregate, as_json, markdown
from accord.study.choice import Choice
from accord.study.entry import Run
from accord.wire.writing import as_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Record = dict[str, Any]


@dataclass(frozen=True)
class TuningResult:
    """The settings each algorithm did best with."""

    folder: Path
    description: str
    rounds: int
    seed: int
    validation: float | None  # share of a client's training data; None: the data came with validation samples
    choices: Mapping[str, Choice]

    @property
    def chosen(self) -> dict[str, list[str]]:
        """The settings, as `sets` of `accord.load_config` and `--set` want them."""
        return {algorithm: list(choice.texts) for algorithm, choice in self.choices.items()}

    @property
    def failed(self) -> dict[tuple[str, int], str]:
        """Why a trial has no score, by algorithm and trial."""
        return {
            (algorithm, record["trial"]): record["failed"]
            for algorithm, choice in self.choices.items()
            for record in choice.tried
            if "failed" in record
        }

    def table(self) -> str:
        """The chosen settings, in Markdown."""
        lines = [f"Settings by {self.description}.", "", "| algorithm | chosen |", "|---|---|"]
        lines += [f"| {algorithm} | {choice.words} |" for algorithm, choice in self.choices.items()]
        return "\n".join(lines) + "\n"

    def as_json(self) -> Record:
        """The search and what it came to, as plain values."""
        return {
            "rounds": self.rounds,
            "seed": self.seed,
            "validation": self.validation,
            "algorithms": {algorithm: choice.as_json() for algorithm, choice in self.choices.items()},
        }

    def write(self) -> None:
        """tuning.json and tuning.md, in the folder."""
        write_atomic(self.folder / "tuning.json", as_text(self.as_json(), indent=2) + "\n")
        write_atomic(self.folder / "tuning.md", self.table())


@dataclass(frozen=True)
class ComparisonResult:
    """The runs of a comparison. They go by algorithm and seed: `result.metrics["fedavg", 0]`."""

    folder: Path
    summaries: Mapping[Run, Record] = field(repr=False)  # of the runs that came to their end
    metrics: Mapping[Run, list[Record]] = field(repr=False)  # their rounds
    failed: Mapping[Run, str]  # the others, and why
    tuning: TuningResult | None = None

    @cached_property
    def rows(self) -> list[Row]:
        """One row per algorithm: mean and sample standard deviation over its seeds."""
        return aggregate(self.summaries.values())

    def table(self) -> str:
        """The rows in Markdown, and below them the settings the search chose."""
        return markdown(self.rows) + (f"\n{self.tuning.table()}" if self.tuning is not None else "")

    def curves(self, value: str = "accuracy") -> dict[str, list[tuple[int, float, float]]]:
        """For each algorithm (round, mean, sample standard deviation) wherever a run has the value."""
        return {algorithm: series(runs, value) for algorithm, runs in self._by_algorithm.items()}

    def plot(self, value: str = "") -> Figure:
        """The curves as a figure of matplotlib (the extra `plot`), neither shown nor saved.

        `value` is a column of `frame()`, such as "clients/worst"; without one, what the runs are judged by.
        """
        return figure_of(self._by_algorithm, value or judged_value(self._by_algorithm, self.summaries.values()))

    def frame(self, of: Literal["rounds", "runs"] = "rounds") -> pd.DataFrame:
        """All numbers as a table of pandas (the extra `tables`), by algorithm, seed and round; or one row per run."""
        if of == "runs":
            return frame_of(({**s, **run._asdict()} for run, s in self.summaries.items()), ("algorithm", "seed"))
        rounds = ({**record, **run._asdict()} for run, records in self.metrics.items() for record in records)
        return frame_of(rounds, ("algorithm", "seed", "round"))

    def draw(self, path: Path) -> bool:
        """The curves as a PNG file; False when there is nothing to draw."""
        return curves(path, self._by_algorithm, judged_value(self._by_algorithm, self.summaries.values()))

    def as_json(self) -> Record:
        """Everything but the rounds, as plain values."""
        values: Record = {
            "rows": as_json(self.rows),
            "runs": [{"folder": run.folder_name, **summary} for run, summary in self.summaries.items()],
            "failed": {run.label: reason for run, reason in self.failed.items()},
        }
        if self.tuning is not None:
            values["tuning"] = self.tuning.as_json()
        return values

    def write(self) -> None:
        """compare.json in the folder, and table.md where there are rows."""
        write_atomic(self.folder / "compare.json", as_text(self.as_json(), indent=2) + "\n")
        if self.rows:
            write_atomic(self.folder / "table.md", self.table())

    @cached_property
    def _by_algorithm(self) -> dict[str, list[list[Record]]]:
        groups: dict[str, list[list[Record]]] = {}
        for run, records in self.metrics.items():
            groups.setdefault(run.algorithm, []).append(records)
        return groups
