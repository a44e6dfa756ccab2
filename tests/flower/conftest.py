"""Answers of nodes in this process are looked for at once."""

from __future__ import annotations

import pytest

from accord.flower import post


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "POLL", 0.001)
    monkeypatch.setattr(post, "LOOK", 0.01)
