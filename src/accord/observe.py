"""Onlookers of a run: they are told what happens and change nothing.

An observer is made before a run, so that a missing package is noticed before any work, and starts threads and
opens files only in `started`: worker processes are forked before that. Whoever made it closes it, also
when the run fails.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.core.tensors import clone
from accord.errors import ConfigError
from accord.frames import scalars

if TYPE_CHECKING:
    from torch import nn

    from accord.config import RunConfig
    from accord.core.types import State

Record = Mapping[str, Any]


class Observer:
    """Does nothing; override what is of interest. Rounds are counted from 1."""

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        """The run begins, or goes on after `first_round` rounds that were done before."""

    def phase(self, round: int, name: str) -> None:
        """A part of the round begins, such as an evaluation."""

    def client_done(self, round: int, task: str, done: int, total: int) -> None:
        """One more of the round's clients has answered."""

    def round_ended(self, round: int, record: Record) -> None:
        """The round's line of metrics.jsonl is written."""

    def state_changed(self, round: int, glance: Glance) -> None:
        """The round has a new state, to be looked at: `glance.model` is the global model, `glance.state` everything.

        class Saver(accord.Observer):
            def state_changed(self, round, glance):
                if round % 10 == 0 and glance.model is not None:
                    torch.save(glance.model.state_dict(), f"model-{round}.pt")
        """

    def ended(self, summary: Record) -> None:
        """All rounds are done."""

    def close(self) -> None:
        """No more calls will come, whether the run ended well or not. May be called twice."""


class Glance:
    """A look at the server's state after a round. What nobody asks for costs nothing; what is given is a copy."""

    def __init__(self, state: State, export: Callable[[State], nn.Module | None]) -> None:
        self._state, self._export = state, export

    @property
    def state(self) -> State:
        """All the server remembers, as named sets of tensors."""
        return {name: clone(tree) for name, tree in self._state.items()}

    @property
    def model(self) -> nn.Module | None:
        """The global model as a module; None for methods without one, or whose prediction is more than one module's."""
        return self._export(self.state)


class Audience(Observer):
    """All observers of a run as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = list(observers)
        self._round = 1

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        for observer in self.observers:
            observer.started(config, folder, total_rounds, first_round)

    def phase(self, round: int, name: str) -> None:
        self._round = round
        for observer in self.observers:
            observer.phase(round, name)

    def client_done(self, round: int, task: str, done: int, total: int) -> None:
        for observer in self.observers:
            observer.client_done(round, task, done, total)

    def client_done_in_round(self, done: int, total: int) -> None:
        """An executor knows no rounds."""
        self.client_done(self._round, "train", done, total)

    def round_ended(self, round: int, record: Record) -> None:
        for observer in self.observers:
            observer.round_ended(round, record)

    def state_changed(self, round: int, glance: Glance) -> None:
        for observer in self.observers:
            observer.state_changed(round, glance)

    def ended(self, summary: Record) -> None:
        for observer in self.observers:
            observer.ended(summary)


def headline(record: Record) -> str:
    """The numbers shown while a run goes on: accuracy, or what leads instead, of global and personal models, and loss.

    >>> headline({"accuracy": 0.91234, "loss": 0.3})
    'accuracy 0.9123  loss 0.3000'
    >>> headline({"accuracy": 0.91234, "personal": {"mean": 0.95}, "loss": 0.3})
    'accuracy 0.9123  personal 0.9500  loss 0.3000'
    """
    from accord.problems import headlines

    numbers = dict(scalars(record))
    names = [*((name, name) for name in headlines()), ("personal/mean", "personal"), ("loss", "loss")]
    return "  ".join(f"{title} {numbers[name]:.4f}" for name, title in names if name in numbers)


def need(module: str, extra: str, what: str) -> Any:
    """A package that an observer needs; a ConfigError says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} is not installed: pip install 'accord-fl[{extra}]'") from error


def shows_bars(console: Any) -> bool:
    """Whether bars can be drawn: on a terminal, and in a notebook that has ipywidgets."""
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return bool(console.is_terminal)


class RichProgress(Observer):
    """Progress bars on a terminal and in a notebook; elsewhere (a log file) a plain line every tenth of the rounds."""

    def __init__(self, console: Any = None) -> None:
        self._rich = need("rich.progress", "cli", "rich")
        self._console = console or need("rich.console", "cli", "rich").Console(stderr=True)
        self._bars: Any = None
        self._rounds: Any = None
        self._clients: Any = None
        self._total = 0
        self._shown: dict[str, Any] = {}

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        """Show the bars; not earlier, since they are drawn by a thread."""
        self.close()
        self._total, self._shown = total_rounds, {}
        if not shows_bars(self._console):
            since = f" from round {first_round + 1}" if first_round else ""
            self._say(f"{config.algorithm.name}, {total_rounds} rounds{since}, {folder}")
            return
        rich = self._rich
        self._bars = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TimeRemainingColumn(),
            rich.TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
        )
        name = config.algorithm.name
        self._rounds = self._bars.add_task(name, total=total_rounds, completed=first_round, note="")
        self._clients = self._bars.add_task("clients", total=None, note="")
        self._bars.start()

    def phase(self, round: int, name: str) -> None:
        """Name what goes on beside the clients' bar."""
        if self._bars is not None:
            self._bars.update(self._clients, note=name)

    def client_done(self, round: int, task: str, done: int, total: int) -> None:
        """Move the clients' bar; it starts again with every task."""
        if self._bars is not None:
            self._bars.update(self._clients, completed=done, total=total, note=task)

    def round_ended(self, round: int, record: Record) -> None:
        """Move the rounds' bar, or print a line now and then."""
        self._shown |= record  # rounds without evaluation keep showing the last accuracy
        if self._bars is not None:
            self._bars.update(self._rounds, completed=round, note=headline(self._shown))
        elif round * 10 // self._total != (round - 1) * 10 // self._total:
            self._say(f"round {round}/{self._total}  {headline(self._shown)}")

    def ended(self, summary: Record) -> None:
        """Take the bars down."""
        self.close()

    def close(self) -> None:
        """Give the terminal back, whatever happened."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
