"""What observers show and send."""

from __future__ import annotations

import io
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from accord.config import LogConfig, RunConfig
from accord.errors import ConfigError
from accord.observe import (
    MLflowObserver,
    Observer,
    RichProgress,
    TensorBoardObserver,
    headline,
    observers_for,
    scalars,
)


def play(observer: Observer, folder: Path, rounds: int, first: int = 0) -> None:
    observer.started(RunConfig(), folder, rounds, first)
    for r in range(first + 1, rounds + 1):
        observer.phase(r, "train")
        observer.client_done(r, "train", 1, 2)
        observer.client_done(r, "train", 2, 2)
        record: dict[str, Any] = {"round": r, "loss": 1.0, "cohort": [1, 2], "clients": {"best": 0.5}}
        observer.round_ended(r, record | ({"accuracy": r / rounds} if r % 2 else {}))
    observer.ended({"accuracy": 0.5, "versions": {"torch": "2"}})
    observer.close()
    observer.close()


def test_the_base_ignores_everything(tmp_path: Path) -> None:
    play(Observer(), tmp_path, 2)


def test_numbers_of_a_record() -> None:
    record = {"a": 1, "b": {"c": 0.5, "d": None, "e": True}, "f": "x", "g": [1]}
    assert dict(scalars(record)) == {"a": 1.0, "b/c": 0.5}


def test_headline() -> None:
    assert headline({"loss": 0.5, "accuracy": 0.25, "personal": {"mean": 1}}) == "accuracy 0.2500  loss 0.5000"
    assert headline({"personal": {"mean": 1}}) == "personal 1.0000"
    assert headline({"loss": None}) == ""


def test_a_log_file_gets_ten_lines(tmp_path: Path) -> None:
    output = io.StringIO()
    play(RichProgress(Console(file=output, width=60)), tmp_path, 30)
    lines = output.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0] == f"fedavg, 30 rounds, {tmp_path}"
    assert lines[1] == "round 3/30  accuracy 0.1000  loss 1.0000"
    assert lines[10] == "round 30/30  accuracy 0.9667  loss 1.0000"  # measured in round 29


def test_a_resumed_run_says_where_it_goes_on(tmp_path: Path) -> None:
    output = io.StringIO()
    play(RichProgress(Console(file=output)), tmp_path, 4, first=2)
    lines = output.getvalue().splitlines()
    assert "from round 3" in lines[0]
    assert [line.split("  ")[0] for line in lines[1:]] == ["round 3/4", "round 4/4"]


def test_bars_on_a_terminal_and_none_left_behind(tmp_path: Path) -> None:
    output, before = io.StringIO(), threading.active_count()
    progress = RichProgress(Console(file=output, force_terminal=True, width=120))
    assert threading.active_count() == before  # nothing runs before the run has forked its workers
    play(progress, tmp_path, 3)
    assert "3/3" in output.getvalue()
    progress.started(RunConfig(), tmp_path, 3, 0)
    progress.close()  # after an error nobody calls `ended`
    patience = time.monotonic() + 10  # the threads are told to end, not waited for
    while threading.active_count() > before and time.monotonic() < patience:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert output.getvalue().count("\x1b[?25h") == output.getvalue().count("\x1b[?25l")  # the cursor is back


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            written.append((folder, purge_step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append("closed")

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    (observer,) = observers_for(RunConfig(log=LogConfig(tensorboard=True)))
    assert isinstance(observer, TensorBoardObserver)
    play(observer, tmp_path, 2, first=1)
    assert written == [
        (str(tmp_path / "tensorboard"), 2),
        ("loss", 1.0, 2),
        ("clients/best", 0.5, 2),
        "closed",
    ]


class FakeMLflow(types.ModuleType):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.told: list[Any] = []

    def start_run(self, **named: Any) -> Any:
        self.told.append(("start", named))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="abc123"))

    def log_params(self, params: dict[str, str]) -> None:
        assert len(params) <= 100
        self.told.append(("params", params))

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.told.append(("metrics", metrics, step))

    def end_run(self, status: str = "FINISHED") -> None:
        self.told.append(("end", status))


def test_mlflow_goes_on_with_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    (observer,) = observers_for(RunConfig(log=LogConfig(mlflow=True)))
    assert isinstance(observer, MLflowObserver)
    observer.started(RunConfig(), tmp_path, 3, 0)
    observer.round_ended(1, {"round": 1, "accuracy": 0.5, "clients": {"best": 1.0}})
    observer.close()  # it failed
    assert fake.told[0] == ("start", {"run_name": tmp_path.name})
    assert fake.told[1][1]["local.lr"] == "0.05"
    assert fake.told[-2:] == [("metrics", {"accuracy": 0.5, "clients/best": 1.0}, 1), ("end", "FAILED")]
    fake.told.clear()
    play(MLflowObserver(), tmp_path, 2, first=1)
    assert fake.told[0] == ("start", {"run_id": "abc123"})
    assert fake.told[-2:] == [("metrics", {"summary/accuracy": 0.5}, None), ("end", "FINISHED")]


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("rich.progress", RichProgress, "cli"),
        ("torch.utils.tensorboard", TensorBoardObserver, "tensorboard"),
        ("mlflow", MLflowObserver, "mlflow"),
    ],
)
def test_missing_packages(module: str, make: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"pip install 'accord-fl\[{extra}\]'"):
        make()


def test_nothing_is_asked_for_by_default() -> None:
    assert observers_for(RunConfig()) == []
