"""A node works messages off with its own app, in forks, and starts nothing else that Flower knows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from flwr.clientapp import ClientApp
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.supernode.runtime import run_clientapp as running

from accord.federation import own_superexec
from accord.federation.own_superexec import CLIENT_APP, REPLACED, Forks, pin_client_app


def test_what_flower_would_load_is_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in REPLACED:
        monkeypatch.setattr(running, name, getattr(running, name))  # put back afterwards
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    pin_client_app()
    assert running.install_from_fab(b"not even a zip file", skip_prompt=True) is None  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == [], "nothing is unpacked"
    load = running.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)  # type: ignore[attr-defined]
    first, second = load("evil/app", "1.0", "ab"), load("other/app", "2.0", "cd")
    assert isinstance(first, ClientApp)
    assert first is second


def test_a_version_that_loads_in_another_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(running, REPLACED[0])
    with pytest.raises(SystemExit, match=r"install_from_fab.*Accord knows flwr"):
        pin_client_app()


def test_flower_starts_programs_where_we_stand() -> None:
    """What is replaced is what its executor calls."""
    assert subprocess_executor.subprocess.Popen.__name__ == "Popen"
    code = Path(subprocess_executor.__file__).read_text()
    assert code.count("subprocess.Popen(") == 2
    assert "subprocess.run" not in code


def test_other_kinds_of_work_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    forks = Forks()
    for name in ("flwr-agentapp", "flwr-model", "flwr-connector", "flwr-serverapp", "flwr-simulation"):
        forks.start([name, "--token", "x"])
        assert f"{name} is refused" in capfd.readouterr().err
    assert forks.children == []


def test_a_message_is_worked_off_in_a_fork(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def work(words: list[str]) -> int:
        (tmp_path / f"{os.getpid()}").write_text(" ".join(words))
        return 7

    monkeypatch.setattr(own_superexec, "work_off", work)
    forks = Forks()
    forks.start([CLIENT_APP, "--token", "x"])
    (child,) = forks.children
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
    assert (tmp_path / str(child)).read_text() == f"{CLIENT_APP} --token x"


def test_ended_forks_are_taken_note_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_superexec, "work_off", lambda words: 0)
    forks = Forks()
    forks.start([CLIENT_APP])
    (first,) = forks.children
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    forks.start([CLIENT_APP])
    assert first not in forks.children
    os.waitpid(forks.children[0], 0)


def test_a_failure_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    for raised, code in ((SystemExit(3), 3), (SystemExit("why"), 1), (SystemExit(None), 0)):

        def app(error: SystemExit = raised) -> None:
            raise error

        monkeypatch.setattr("flwr.supernode.cli.flwr_clientapp", app)
        monkeypatch.setattr("sys.argv", ["pytest"])
        monkeypatch.setattr("flwr.supercore.exit.exit_handler.registered_exit_handlers", [])
        assert own_superexec.work_off([CLIENT_APP]) == code
