"""Reading back what a run left in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from accord.errors import DataError

Record = dict[str, Any]


def read_summary(folder: Path) -> Record:
    """`summary.json` of a finished run."""
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}; `accord resume {folder}` writes it again") from error
    if not isinstance(summary, dict):
        raise DataError(f"{path} is not a summary; `accord resume {folder}` writes it again")
    return summary


def read_metrics(folder: Path) -> list[Record]:
    """The lines of `metrics.jsonl`; one that was cut short by a crash ends the list."""
    path = folder / "metrics.jsonl"
    records: list[Record] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not isinstance(record, dict):
            break
        records.append(record)
    return records
