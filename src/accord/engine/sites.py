"""`sites.csv` in a run's folder: a line per site, for spreadsheets and people as well as for us."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accord.engine.files import write_atomic
from accord.errors import DataError
from accord.measures.sites import COUNTS, WORDS, Sites
from accord.wire.files import no_links

FILE = "sites.csv"


def write_sites(folder: Path, sites: Sites | None) -> None:
    """Numbers as Python writes them, so that they are read as they were; an empty cell is no value."""
    if sites is None:
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(sites.columns)
    writer.writerows(zip(*sites.columns.values(), strict=True))
    write_atomic(folder / FILE, text.getvalue())


def read_sites(folder: Path) -> Sites | None:
    """As they were written; None where nothing was measured at the clients, DataError if the file is damaged."""
    path = folder / FILE
    try:
        with open(path, encoding="utf-8", newline="", opener=no_links) as file:
            title, *lines = csv.reader(file, strict=True)
        if not {*WORDS, *COUNTS} <= set(title):
            raise ValueError("its first line does not name the columns")
        columns = zip(*lines, strict=True) if lines else [()] * len(title)
        return Sites({name: list(map(_reader(name), c)) for name, c in zip(title, columns, strict=True)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _reader(column: str) -> Callable[[str], Any]:
    if column in WORDS:
        return str
    return int if column in COUNTS else lambda text: float(text) if text else None
