"""What a study tells while it goes on. The rounds of a run are told to its observers (`accord.observe`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accord.study.choice import Choice
    from accord.study.entry import Entry
    from accord.study.trials import Trial


class Progress:
    """Does nothing; override what is of interest."""

    def tuning(self, description: str) -> None:
        """The trials are planned, and begin."""

    def started(self, entry: Entry, position: int, total: int) -> None:
        """A run or a trial is next; `entry.finished` and `entry.begun` say what is left of it to do."""

    def advanced(self, entry: Entry, round: int, record: Mapping[str, float]) -> None:
        """One of several runs side by side has done so many rounds; `record` has the numbers of the last one."""

    def ended(self, entry: Entry) -> None:
        """A run or a trial came to its end."""

    def trial_failed(self, trial: Trial, reason: str) -> None:
        """A trial counts as the worst of its algorithm."""

    def chosen(self, algorithm: str, choice: Choice) -> None:
        """The trials of an algorithm are done."""

    def run_failed(self, entry: Entry, reason: str) -> None:
        """A run came to no end; the others go on."""

    def not_drawn(self, reason: str) -> None:
        """There will be no curves.png."""
