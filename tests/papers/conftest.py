"""A small experiment of our own, and records written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from accord.papers.experiment import Column, Experiment, Place, Row, Setting
from accord.papers.numbers import Number
from accord.papers.printed import NOTHING, printed
from accord.papers.records import Records
from accord.papers.table import Table

TINY = {
    "rounds": 4,
    "data": {"name": "mnist5k", "limit": 60},
    "partition": {"name": "iid", "clients": 3},
    "local": {"steps": 1, "batch_size": 8},
}


def tiny(rounds: int = 4) -> Experiment:
    """Three methods on sixty digits; the paper has SCAFFOLD as its own."""
    place = Place("digits", Setting("digits", "Digits", {**TINY, "rounds": rounds}, short=2))
    columns = [
        Column("last", "accuracy", "Digits", place, Number("accuracy", "last 2")),
        Column("to50", "rounds to 50 %", "Digits", place, Number("rounds to 0.5", unit="rounds")),
    ]

    def row(name: str, accuracy: str, rounds: str, **config: object) -> Row:
        both = {"last": printed(accuracy), "to50": printed(rounds)}
        return Row(name, name.upper(), {"algorithm": {"name": name, **config}}, both)

    rows = [
        row("fedavg", "60.00±1.00", "100 (1.0X)"),
        row("fedprox", "61.00", "90", mu=0.5),
        row("scaffold", "70.00", "50 (2.0X)"),
        Row(
            "later",
            "LATER",
            {"algorithm": {"name": "fedavg"}},
            dict.fromkeys(("last", "to50"), NOTHING),
            needs="a part",
        ),
    ]
    return Experiment("tiny", "fedbr", "Table 0", "a test", columns, rows, "scaffold", "fedavg", ("rounds", "clients"))


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the record of a row of `tiny`: accuracies at rounds 10, 20, ..."""

    def made(row: str, accuracies: Sequence[float], seed: int = 0, name: str = "", **more: Any) -> Path:
        config = {**TINY, "algorithm": tiny().row(row).config["algorithm"], "seed": seed, "rounds": 40}
        rounds = [10 * (place + 1) for place in range(len(accuracies))]
        fields: Mapping[str, Any] = {
            "experiment": "tiny",
            "row": row,
            "seed": seed,
            "config": config,
            "rounds": 40,
            "rounds_done": rounds[-1] if rounds else 0,
            "finished": True,
            "seconds": 8.0,
            "versions": {"accord": "0.2.0"},
            "hardware": {"gpu": "a GPU"},
            "evaluations": [{"round": r, "accuracy": a} for r, a in zip(rounds, accuracies, strict=True)],
        }
        path = tmp_path / "results" / "tiny" / f"{name or row}-seed{seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**fields, **more}))
        return path

    return made


def table(tmp_path: Path, rounds: int = 40) -> Table:
    """`tiny`, filled from what was written."""
    return Table.of(tiny(rounds), Records.of([tmp_path / "results"]), (0, 1, 2))
