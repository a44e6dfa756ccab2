"""The end of a run: `summary.json`, sealed, so that a finished run can be returned as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.engine.files import write_atomic
from accord.errors import CheckpointError, DataError
from accord.wire.records import SHA256, Bounds, parse
from accord.wire.writing import NOT_FINITE, as_text, digest, finite_only

FILE = "summary.json"
BOUNDS = Bounds(size=1 << 28, depth=16, entries=1 << 24)

Record = dict[str, Any]


def sealed(summary: Mapping[str, Any], last: Mapping[str, Any], lines: str) -> Record:
    """The summary as it is written.

    `last` is the last round's line and `lines` the checksum of all of them. A run that came to its end with values that
    are no finite numbers says so under `diverged`.
    """
    record: Record = finite_only(summary)
    lost = [*last.get(NOT_FINITE, ()), *record.get(NOT_FINITE, ())]
    if lost:
        record["diverged"] = (
            f"the run came to its end, but its last evaluation gave no finite numbers ({', '.join(lost[:4])}): "
            "training diverged. Lower local.lr or the server's rate, or set local.clip (e.g. 10)."
        )
    record["metrics_sha256"] = lines
    record = json.loads(as_text(record))
    record["digest"] = digest(record)
    return record


def write_summary(folder: Path, record: Mapping[str, Any]) -> None:
    """With it a run is over."""
    write_atomic(folder / FILE, as_text(record, indent=2))


def read_summary(folder: Path) -> Record:
    """`summary.json` of a finished run; DataError if it is not there, or not as it was written."""
    path = folder / FILE
    again = f"`accord resume {folder}` writes it again"
    try:
        with open(path, "rb") as file:
            summary: Record = parse(file.read(BOUNDS.size + 1), BOUNDS, FILE)
    except (OSError, DataError) as error:
        raise DataError(f"cannot read {path}: {error}; {again}") from error
    if "digest" in summary and digest({k: v for k, v in summary.items() if k != "digest"}) != summary["digest"]:
        raise DataError(f"{path} is damaged: its digest differs; {again}")
    return summary


def finished(folder: Path, can_write_again: bool) -> Record | None:
    """The summary of a run that came to its end; None if it did not, or if its summary must be written again."""
    if not (folder / FILE).exists():
        return None
    try:
        summary = read_summary(folder)
        if not SHA256.fits(summary.get("digest")) or not SHA256.fits(summary.get("metrics_sha256")):
            raise DataError(f"{folder / FILE} is not sealed")
    except DataError as error:
        if can_write_again:
            return None
        raise CheckpointError(
            f"this run came to its end, but {error}, which it cannot without a checkpoint (checkpoint.every = 0). Its "
            f"metrics.jsonl is left as it is. Delete {folder / FILE} to do all rounds again, or start a new run."
        ) from error
    return summary
