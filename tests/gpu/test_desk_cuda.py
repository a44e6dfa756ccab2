"""Runs of an experiment side by side on a GPU: a server that has imported everything, and touched no device, forks."""

from __future__ import annotations

from pathlib import Path

import pytest

import accord
from papers.conftest import tiny

pytestmark = pytest.mark.gpu


def test_runs_share_a_gpu(tmp_path: Path) -> None:
    said: list[str] = []
    where = {"runs": tmp_path / "runs", "results": tmp_path / "results"}
    result = accord.reproduce(tiny(2), device="cuda", jobs=2, sets=["compile=false"], say=said.append, **where)
    assert result.failed == {}, "\n".join(path.read_text() for path in tmp_path.rglob("*.log"))
    assert result.missing == []
    assert sum("ended: " in line for line in said) == 3
