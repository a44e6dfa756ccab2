"""accord profile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accord.engine.profile import PHASES

SMALL = ("partition.clients=4", "data.limit=80", "model.name=mlp", "device=cpu", "partition.min_size=1")
SETS = [word for setting in SMALL for word in ("--set", setting)]


def test_a_table_with_a_row_per_phase_and_nothing_left_behind(accord: Callable[..., Any], tmp_path: Path) -> None:
    result = accord("profile", "--rounds", 1, "-a", "fedprox", *SETS)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("fedprox: ")
    lines = [line.split("│") for line in result.output.splitlines() if line.startswith("│")]
    rows = [line for line in lines if line[2].strip()]  # the words of the last column may take a second line
    assert [row[2].strip() for row in rows] == list(PHASES)
    assert 99 < sum(float(row[4].strip().rstrip("%")) for row in rows) < 101
    assert list(tmp_path.iterdir()) == []


def test_seconds_as_json(accord: Callable[..., Any]) -> None:
    found = json.loads(accord("profile", "--rounds", 1, "--json", *SETS).stdout)
    assert found["rounds"] == 1
    assert list(found["seconds"]) == list(PHASES)


def test_too_few_rounds_in_the_configuration(accord: Callable[..., Any]) -> None:
    result = accord("profile", "--rounds", 20, *SETS)
    assert result.exit_code == 2
    assert "raise it, or profile fewer" in result.output
