"""Answers of nodes in this process are looked for at once. All of it needs Flower, which needs Python 3.11."""

from __future__ import annotations

import importlib.util

import pytest

HERE = importlib.util.find_spec("flwr") is not None
collect_ignore_glob = [] if HERE else ["test_*.py"]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    if HERE:
        from accord.flower import post

        monkeypatch.setattr(post, "POLL", 0.001)
        monkeypatch.setattr(post, "LOOK", 0.01)
