"""Onlookers of a run: they are told what happens and change nothing.

An observer is made before a run, so that a missing package is noticed before any work, and starts threads and
opens files only in `started`: worker processes are forked before that. Whoever made it closes it, also
when the run fails.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.errors import ConfigError

if TYPE_CHECKING:
    from accord.config import RunConfig

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

    def ended(self, summary: Record) -> None:
        """All rounds are done."""

    def close(self) -> None:
        """No more calls will come, whether the run ended well or not. May be called twice."""


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

    def ended(self, summary: Record) -> None:
        for observer in self.observers:
            observer.ended(summary)


def observers_for(config: RunConfig) -> list[Observer]:
    """The observers `[log]` asks for; a ConfigError when their packages are missing."""
    observers: list[Observer] = []
    if config.log.tensorboard:
        observers.append(TensorBoardObserver())
    if config.log.mlflow:
        observers.append(MLflowObserver())
    return observers


def scalars(record: Record, prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in a record, nested names joined by a slash.

    >>> dict(scalars({"accuracy": 0.5, "clients": {"best": 1}, "cohort": [3, 4], "loss": None}))
    {'accuracy': 0.5, 'clients/best': 1.0}
    """
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


def headline(record: Record) -> str:
    """The numbers shown while a run goes on: accuracy, or what leads instead (personal if there is no other), and loss.

    >>> headline({"accuracy": 0.91234, "loss": 0.3})
    'accuracy 0.9123  loss 0.3000'
    """
    from accord.problems import headlines

    numbers = dict(scalars(record))
    leading = [(name, name) for name in headlines() if name in numbers]
    names = [*(leading or [("personal/mean", "personal")]), ("loss", "loss")]
    return "  ".join(f"{title} {numbers[name]:.4f}" for name, title in names if name in numbers)


def _need(module: str, extra: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} is not installed: pip install 'accord-fl[{extra}]'") from error


class RichProgress(Observer):
    """Progress bars on a terminal; elsewhere (a log file) a plain line every tenth of the rounds."""

    def __init__(self, console: Any = None) -> None:
        self._rich = _need("rich.progress", "cli", "rich")
        self._console = console or _need("rich.console", "cli", "rich").Console(stderr=True)
        self._bars: Any = None
        self._rounds: Any = None
        self._clients: Any = None
        self._total = 0
        self._shown: dict[str, Any] = {}

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        """Show the bars; not earlier, since they are drawn by a thread."""
        self.close()
        self._total, self._shown = total_rounds, {}
        if not self._console.is_terminal:
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


class TensorBoardObserver(Observer):
    """Every number of every round, in the `tensorboard` folder of the run."""

    def __init__(self) -> None:
        self._module = _need("torch.utils.tensorboard", "tensorboard", "TensorBoard (log.tensorboard)")
        self._writer: Any = None

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        """Open the files; what an interrupted run wrote beyond its checkpoint is hidden."""
        self._writer = self._module.SummaryWriter(str(folder / "tensorboard"), purge_step=first_round + 1)

    def round_ended(self, round: int, record: Record) -> None:
        for name, value in scalars(record):
            if name != "round":
                self._writer.add_scalar(name, value, round)

    def close(self) -> None:
        """Write what is still in memory."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class MLflowObserver(Observer):
    """Settings, numbers of every round and summary, as one MLflow run; a resumed run goes on in the same one.

    Where MLflow keeps them is its own matter: set MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME.
    """

    def __init__(self) -> None:
        self._mlflow = _need("mlflow", "mlflow", "MLflow (log.mlflow)")
        self._open = False

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        """Start the MLflow run, or take up the one whose id lies in the folder."""
        from accord.config import to_dict
        from accord.engine.files import write_atomic

        known = folder / "mlflow-run-id"
        if known.is_file():
            self._mlflow.start_run(run_id=known.read_text(encoding="utf-8").strip())
        else:
            started = self._mlflow.start_run(run_name=folder.name)
            settings = list(_flat(to_dict(config)))
            for first in range(0, len(settings), 100):  # MLflow takes a hundred at a time
                self._mlflow.log_params(dict(settings[first : first + 100]))
            write_atomic(known, started.info.run_id + "\n")
        self._open = True

    def round_ended(self, round: int, record: Record) -> None:
        self._mlflow.log_metrics({n: v for n, v in scalars(record) if n != "round"}, step=round)

    def ended(self, summary: Record) -> None:
        """Send the summary and finish."""
        self._mlflow.log_metrics({f"summary/{name}": value for name, value in scalars(summary)})
        self._mlflow.end_run()
        self._open = False

    def close(self) -> None:
        """Mark a run that did not come to its end."""
        if self._open:
            self._mlflow.end_run(status="FAILED")
            self._open = False


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
