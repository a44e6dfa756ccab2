"""Commands as a shell gives them, in an empty folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from accord.cli.app import app
from support.fake_engine import engine

__all__ = ["engine"]


@pytest.fixture
def accord(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACCORD_DEBUG", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest's workers have it: output goes to no terminal here
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(a) for a in arguments])
