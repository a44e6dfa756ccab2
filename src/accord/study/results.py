"""What a study came to, as objects: tables, curves, and the files beside the runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from accord.engine.files import write_atomic
from accord.figures import figure_of, judged_value, series
from accord.frames import frame_of
from accord.report.differences import Differences, differences
from accord.report.formats import differences_markdown
from accord.report.plots import curves
from accord.report.runs import read_metrics, read_summary
from accord.report.tables import Row, aggregate, as_json, markdown
from accord.study.choice import Choice
from accord.study.entry import COMPARISON, Run, read_comparison
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

    @property
    def pruned(self) -> dict[tuple[str, int], str]:
        """After which round a trial was stopped, by algorithm and trial."""
        return {
            (algorithm, record["trial"]): record["pruned"]
            for algorithm, choice in self.choices.items()
            for record in choice.tried
            if "pruned" in record
        }

    def joined(self, known: Mapping[str, Any]) -> TuningResult:
        """Together with what an earlier search of the same kind came to for other algorithms."""
        others = {
            algorithm: Choice.from_json(record)
            for algorithm, record in known.get("algorithms", {}).items()
            if algorithm not in self.choices
        }
        return replace(self, choices={**self.choices, **others})

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
    """The runs of a comparison. They go by algorithm (or a variant's label) and seed: `result.metrics["fedavg", 0]`."""

    folder: Path
    summaries: Mapping[Run, Record] = field(repr=False)  # of the runs that came to their end
    metrics: Mapping[Run, list[Record]] = field(repr=False)  # their rounds
    failed: Mapping[Run, str]  # the others, and why
    tuning: TuningResult | None = None
    digest: str = field(default="", repr=False)  # of the common settings

    @cached_property
    def rows(self) -> list[Row]:
        """One row per algorithm or variant: mean and sample standard deviation over its seeds."""
        return aggregate({**summary, "algorithm": run.algorithm} for run, summary in self.summaries.items())

    def differences(self, baseline: str | None = None, by: str | None = None) -> Differences | None:
        """Every row against the best one, or `baseline`, seed by seed; None where there is nothing to compare.

        `by` is the key of a column, such as "accuracy"; None: the first one that all rows have.
        """
        return differences(self.summaries, baseline, by)

    def table(self) -> str:
        """The rows in Markdown, below them the differences to the best, and the settings the search chose."""
        apart = self.differences()
        return (
            markdown(self.rows)
            + (f"\n{differences_markdown(apart)}" if apart is not None else "")
            + (f"\n{self.tuning.table()}" if self.tuning is not None else "")
        )

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
        apart = self.differences()
        values: Record = {
            "settings": self.digest,
            "rows": as_json(self.rows),
            "differences": apart.as_json() if apart is not None else None,
            "runs": [
                {"folder": run.folder_name, "variant": run.algorithm, **summary}
                for run, summary in self.summaries.items()
            ],
            "failed": {run.label: reason for run, reason in self.failed.items()},
        }
        if self.tuning is not None:
            values["tuning"] = self.tuning.as_json()
        return values

    def joined(self) -> ComparisonResult:
        """Together with what the folder had before: a comparison of other algorithms or seeds takes nothing away."""
        known = read_comparison(self.folder)
        if known is None:
            return self
        summaries, metrics = dict(self.summaries), dict(self.metrics)
        for record in known["runs"]:
            run = Run(str(record["variant"]), int(record["seed"]))
            folder = self.folder / run.folder_name
            if run not in summaries and run not in self.failed and (folder / "summary.json").is_file():
                summaries[run], metrics[run] = read_summary(folder), read_metrics(folder)
        tuning = self.tuning.joined(known.get("tuning", {})) if self.tuning is not None else None
        return replace(self, summaries=summaries, metrics=metrics, tuning=tuning)

    def write(self) -> None:
        """compare.json in the folder, and table.md where there are rows."""
        write_atomic(self.folder / COMPARISON, as_text(self.as_json(), indent=2) + "\n")
        if self.rows:
            write_atomic(self.folder / "table.md", self.table())

    @cached_property
    def _by_algorithm(self) -> dict[str, list[list[Record]]]:
        groups: dict[str, list[list[Record]]] = {}
        for run, records in self.metrics.items():
            groups.setdefault(run.algorithm, []).append(records)
        return groups
