"""What all studies of the tests are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.fake_engine import engine
from support.study import SETS, hospitals, network

__all__ = ["engine"]


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, Any]:
    """A folder, own data and an own network."""
    return {"sets": [*SETS, f"out={tmp_path / 'runs'}"], "data": hospitals(), "model": network()}
