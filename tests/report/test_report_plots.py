"""The lines and bands of a picture, and the file."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from accord.errors import ConfigError
from accord.figures import series
from accord.report.plots import curves


def test_series_are_means_over_the_runs_that_have_the_round() -> None:
    runs = [
        [{"round": 1, "accuracy": 0.2}, {"round": 2, "loss": 1.0}, {"round": 3, "accuracy": 0.6}],
        [{"round": 1, "accuracy": 0.4}, {"round": 3, "accuracy": None}, {"round": 5, "accuracy": math.nan}],
    ]
    assert series(runs) == [(1, pytest.approx(0.3), pytest.approx(math.sqrt(0.02))), (3, 0.6, 0.0)]
    assert series([]) == []


def test_a_picture_is_written_whole(tmp_path: Path) -> None:
    runs = {
        f"method $x_{i}$": [[{"round": r, "accuracy": 0.1 * s + 0.01 * r} for r in (1, 2)] for s in range(2)]
        for i in range(9)
    }
    path = tmp_path / "new" / "curves.png"
    assert curves(path, runs)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(path.parent.iterdir()) == [path]
    assert curves(tmp_path / "one.png", {"a": [[{"round": 1, "accuracy": 0.5}]]})


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert not curves(tmp_path / "c.png", {"local": [[{"round": 1, "loss": 2.0}]]})
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'accord-fl\[plot\]'"):
        curves(tmp_path / "c.png", {"a": [[{"round": 1, "accuracy": 0.5}]]})
