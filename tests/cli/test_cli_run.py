"""run, resume, and the ways they end."""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from accord.cli import main
from accord.cli.running import Whereabouts
from accord.config import RunConfig, load_config, to_toml
from accord.errors import DivergedError
from accord.observe import RichProgress


def test_without_arguments_it_is_the_demo(accord: Callable[..., Any], engine: Any) -> None:
    result = accord("run")
    assert result.exit_code == 0, result.output
    assert engine.calls == [("run", "fedavg-0")]
    # 0.80, 0.70, 1.0 / 0.25 / 0.5 / 0.125, 1 and 2 megabytes, 12.5 seconds, round 7
    for part in (
        "80.00",
        "70.00",
        "100.00",
        "25.00",
        "50.00",
        "12.50",
        "1.0 MB",
        "2.0 MB",
        "12.5",
        "rounds to 80 %",
    ):
        assert part in result.stdout
    assert "rounds to 90 %" not in result.stdout  # never reached
    assert result.stdout.splitlines()[-1] == "runs/fedavg-s0"
    assert Path("runs/fedavg-s0/curves.png").read_bytes().startswith(b"\x89PNG")
    assert "round 20/20  accuracy 0.8000  loss 0.0500" in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("round ")]) == 10


def test_short_options_win_over_sets_and_sets_over_the_file(accord: Callable[..., Any], engine: Any) -> None:
    Path("a.toml").write_text('rounds = 3\nseed = 5\n[algorithm]\nname = "fedprox"\nmu = 0.5\n[local]\nlr = 0.2\n')
    result = accord(
        *("run", "a.toml", "--set", "rounds=4", "--set", "local.lr=0.3", "--rounds", 6, "-a", "fedavg"),
        *("--out", "o", "--name", "7", "--executor", "sequential", "--data-dir", "d"),
    )
    assert result.exit_code == 0, result.output
    config = load_config(Path("o/7/config.toml"))
    assert (config.rounds, config.seed, config.local.lr) == (6, 5, 0.3)
    assert (config.algorithm.name, config.executor, config.data.dir) == ("fedavg", "sequential", "d")
    assert "mu" not in config.algorithm.options


def test_quiet_prints_only_the_folder(accord: Callable[..., Any], engine: Any) -> None:
    result = accord("run", "--quiet", "--rounds", 2)
    assert (result.stdout, result.stderr) == ("runs/fedavg-s0\n", "")


def test_dry_run_prints_a_configuration_that_runs(accord: Callable[..., Any], engine: Any) -> None:
    result = accord("run", "--dry-run", "-a", "fedprox", "--set", "algorithm.mu=0.25")
    assert result.exit_code == 0
    assert engine.calls == []
    assert list(Path().iterdir()) == []
    Path("again.toml").write_text(result.stdout)
    again = load_config(Path("again.toml"))
    assert again.algorithm.options["mu"] == 0.25
    assert to_toml(again) == result.stdout


def test_ctrl_c_says_how_to_go_on_and_resume_does(accord: Callable[..., Any], engine: Any) -> None:
    engine.stop_at, engine.error = 3, KeyboardInterrupt()
    result = accord("run", "--name", "it's", "--rounds", 5)  # the name must survive a shell
    assert result.exit_code == 2  # an apostrophe is not allowed in a name
    result = accord("run", "--out", "my runs", "--name", "x", "--rounds", 5)
    assert result.exit_code == 130
    assert "accord resume 'my runs/x'" in result.stderr
    assert "Traceback" not in result.output
    result = accord("resume", "my runs/x")
    assert result.exit_code == 0, result.output
    assert "from round 4" in result.stderr
    assert "80.00" in result.stdout


def test_ctrl_c_before_the_first_round(accord: Callable[..., Any], engine: Any) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    sys.modules["accord.engine.run"].run = interrupted  # type: ignore[attr-defined]
    result = accord("run")
    assert result.exit_code == 130
    assert "nothing was under way" in result.stderr


def terminated(self: Any, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
    self.folder = folder
    os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_says_how_to_go_on_and_is_what_it_was_afterwards(
    accord: Callable[..., Any], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Whereabouts, "started", terminated)
    monkeypatch.setattr(RichProgress, "started", terminated)
    for command, hint in (
        (("run", "--name", "x"), "accord resume runs/x"),
        (("resume", "runs/x"), "accord resume runs/x"),
        (("compare", "--algorithms", "fedavg"), "run the same command again"),
    ):
        result = accord(*command)
        assert result.exit_code == 128 + 15
        assert hint in result.stderr
        assert "Traceback" not in result.output
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_sigterm_before_the_first_round(accord: Callable[..., Any], engine: Any) -> None:
    sys.modules["accord.engine.run"].run = lambda *_, **__: os.kill(os.getpid(), 15)  # type: ignore[attr-defined]
    result = accord("run")
    assert result.exit_code == 143
    assert "nothing was under way" in result.stderr


def test_sigterm_of_somebody_with_other_plans_is_left_alone(
    accord: Callable[..., Any], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Whereabouts, "started", terminated)
    got: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        assert accord("run", "-q").exit_code == 0
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_commands_run_in_other_threads_too(accord: Callable[..., Any], engine: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(accord, "run", "-q").result().exit_code == 0


def test_clients_that_were_left_out_are_named_however_quiet(
    accord: Callable[..., Any], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = {"3": {"times": 2, "why": "ValueError: [red]no"}, "8": {"times": 1, "why": "its worker was killed"}}

    def note(self: Whereabouts, summary: dict[str, Any]) -> None:
        summary["left_out"] = left_out

    monkeypatch.setattr(Whereabouts, "ended", note, raising=False)
    said = "warning: 2 clients were left out: 3 (2 times: ValueError: [red]no), 8 (once: its worker was killed)"
    for command in (("run", "-q"), ("resume", "runs/fedavg-s0")):
        result = accord(*command)
        assert result.exit_code == 0
        assert said in result.stderr.splitlines()
    compare = ("compare", "-q", "--algorithms", "fedprox", "--seeds", "4", "--out", "o")
    accord(*compare)
    (path,) = Path("o").rglob("summary.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "left_out": left_out}))
    assert said in accord(*compare).stderr
    left_out.clear()
    assert "left out" not in accord("resume", "runs/fedavg-s0").output


def test_other_errors_end_with_one_and_no_markup(accord: Callable[..., Any], engine: Any) -> None:
    engine.stop_at, engine.error = 1, DivergedError("loss is [red]nan[/red] :boom: in round 1")
    result = accord("run")
    assert result.exit_code == 1
    assert "error: loss is [red]nan[/red] :boom: in round 1" in result.stderr
    assert "Traceback" not in result.output


def test_a_traceback_only_when_asked_for(
    accord: Callable[..., Any], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCORD_DEBUG", "1")
    result = accord("run", "--rounds", 0)
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "rounds = 0" in result.stderr


def test_resume_of_something_else(accord: Callable[..., Any], engine: Any) -> None:
    result = accord("resume", "nowhere")
    assert result.exit_code == 1
    assert "nowhere holds no run" in result.stderr


def test_missing_log_packages_are_noticed_before_work(
    accord: Callable[..., Any], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, key, extra in (
        ("torch.utils.tensorboard", "tensorboard", "accord-fl[tensorboard]"),
        ("mlflow", "mlflow", "accord-fl[mlflow]"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        result = accord("run", "--set", f"log.{key}=true")
        assert result.exit_code == 2
        assert f"pip install '{extra}'" in result.stderr
    assert engine.calls == []
    assert list(Path().iterdir()) == []


def test_without_matplotlib_there_is_no_picture(
    accord: Callable[..., Any], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = accord("run", "--rounds", 2)
    assert result.exit_code == 0
    assert not Path("runs/fedavg-s0/curves.png").exists()


def test_main_without_typer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = builtins.__import__

    def blind(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "typer":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", blind)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "pip install 'accord-fl[cli]'" in capsys.readouterr().err


def test_main_shows_no_traceback_for_what_nobody_expected(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["accord", "run", "-q"])
    monkeypatch.delenv("ACCORD_DEBUG", raising=False)
    engine.stop_at, engine.error, engine.always = 1, PermissionError(13, "Permission denied", "runs"), True
    with pytest.raises(SystemExit) as caught:
        main()
    error = capsys.readouterr().err
    assert caught.value.code == 1
    assert "PermissionError" in error
    assert "ACCORD_DEBUG=1" in error
    assert "Traceback" not in error
    monkeypatch.setenv("ACCORD_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["accord", "run", "-q", "--name", "again"])
    with pytest.raises(PermissionError):
        main()


def test_defaults_are_valid() -> None:
    assert load_config().rounds == RunConfig().rounds == 20
