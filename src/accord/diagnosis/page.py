"""A diagnosis as one HTML file: the report's frame, style and drawing library, and a script of its own."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from accord.engine.files import write_atomic
from accord.report.page import document
from accord.wire.writing import finite_only


def write_page(record: Mapping[str, Any], pictures: Sequence[Mapping[str, Any]], target: Path) -> Path:
    """The page of a diagnosis's record, with what its pictures need, finding by finding."""
    values = {
        **record,
        "title": f"Diagnosis of {record['data']}",
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "pictures": [dict(picture) for picture in pictures],
    }
    script = files("accord.diagnosis").joinpath("assets").joinpath("diagnosis.js").read_text(encoding="utf-8")
    write_atomic(target, document(finite_only(values), script))
    return target
