"""Reading back what a run left in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accord.engine.ending import read_summary
from accord.errors import DataError
from accord.wire.lines import lines

Record = dict[str, Any]

__all__ = ["read_metrics", "read_summary"]


def read_metrics(folder: Path) -> list[Record]:
    """The lines of `metrics.jsonl`; the last one, if it was cut short by a crash, is left out."""
    path = folder / "metrics.jsonl"
    records: list[Record] = []
    try:
        with open(path, "rb") as file:
            for line in lines(file):
                if line.record is not None:
                    records.append(line.record)
                elif line.whole:
                    raise DataError(f"{path}: line {line.number} is damaged ({line.problem}); put back a sound copy")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    return records
