"""Bars of several runs side by side, drawn when something is told: no thread draws while processes are forked."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

SHORT = 40  # letters of a label


class Bars:
    """On a terminal; elsewhere nothing but lines that are said."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bars: Progress | None = None
        self._tasks: dict[str, Any] = {}
        if self._console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                console=self._console,
                auto_refresh=False,
                transient=True,
            )
            self._bars.start()

    def add(self, label: str, rounds: int) -> None:
        """One more run."""
        if self._bars is not None:
            self._tasks[label] = self._bars.add_task(label[:SHORT], total=rounds, note="")
            self._bars.refresh()

    def move(self, label: str, round: int, note: str) -> None:
        """A run has done so many rounds."""
        if self._bars is not None and label in self._tasks:
            self._bars.update(self._tasks[label], completed=round, note=note)
            self._bars.refresh()

    def remove(self, label: str) -> None:
        """A run is over."""
        if self._bars is not None and label in self._tasks:
            self._bars.remove_task(self._tasks.pop(label))
            self._bars.refresh()

    def say(self, line: str) -> None:
        """A line above the bars."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Give the terminal back."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
