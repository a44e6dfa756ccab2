"""Observers that hand the numbers of a run on to TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.frames import scalars
from accord.observe import Observer, Record, need

if TYPE_CHECKING:
    from accord.config import RunConfig


def observers_for(config: RunConfig) -> list[Observer]:
    """The observers `[log]` asks for; a ConfigError when their packages are missing."""
    wanted = {name: getattr(config.log, name) for name in TRACKERS}
    return [tracker() for name, tracker in TRACKERS.items() if wanted[name]]


class TensorBoardObserver(Observer):
    """Every number of every round, in the `tensorboard` folder of the run."""

    def __init__(self) -> None:
        self._module = need("torch.utils.tensorboard", "tensorboard", "TensorBoard (log.tensorboard)")
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
        self._mlflow = need("mlflow", "mlflow", "MLflow (log.mlflow)")
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


class WandbObserver(Observer):
    """Settings, numbers of every round and summary, as one run of Weights & Biases; a resumed run goes on in it.

    Where it goes is its own matter: set WANDB_PROJECT, WANDB_MODE and the like.
    """

    def __init__(self) -> None:
        self._wandb = need("wandb", "wandb", "Weights & Biases (log.wandb)")
        self._run: Any = None

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        """Start a run, or take up the one whose id lies in the folder."""
        from accord.config import to_dict
        from accord.engine.files import write_atomic

        known = folder / "wandb-run-id"
        number = known.read_text(encoding="utf-8").strip() if known.is_file() else None
        settings = dict(_flat(to_dict(config)))
        self._run = self._wandb.init(name=folder.name, dir=str(folder), config=settings, id=number, resume="allow")
        if number is None:
            write_atomic(known, f"{self._run.id}\n")

    def round_ended(self, round: int, record: Record) -> None:
        self._run.log({name: value for name, value in scalars(record) if name != "round"}, step=round)

    def ended(self, summary: Record) -> None:
        """Send the summary and finish."""
        self._run.summary.update({f"summary/{name}": value for name, value in scalars(summary)})
        self._run.finish()
        self._run = None

    def close(self) -> None:
        """Mark a run that did not come to its end."""
        if self._run is not None:
            self._run.finish(exit_code=1)
            self._run = None


TRACKERS: dict[str, type[Observer]] = {
    "tensorboard": TensorBoardObserver,
    "mlflow": MLflowObserver,
    "wandb": WandbObserver,
}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
