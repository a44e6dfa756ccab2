"""`sites.csv` in a run's folder: a line per site, for spreadsheets and people as well as for us. `division.json`: what
classes the sites hold."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from accord.data.dealing import owners
from accord.data.federated import FederatedData
from accord.engine.files import write_atomic
from accord.errors import DataError
from accord.measures.sites import COUNTS, WORDS, Sites
from accord.problems import PROBLEMS
from accord.wire.files import no_links
from accord.wire.writing import as_text

FILE, DIVISION = "sites.csv", "division.json"
LARGEST = 200_000  # numbers in a table of sites and classes


def write_sites(folder: Path, sites: Sites | None) -> None:
    """Numbers as Python writes them, so that they are read as they were; an empty cell is no value."""
    if sites is None:
        return
    columns = [map(_quoted, column) if name in WORDS else map(_text, column) for name, column in sites.columns.items()]
    lines = [",".join(sites.columns), *map(",".join, zip(*columns, strict=True))]
    write_atomic(folder / FILE, "\n".join(lines) + "\n")


def read_sites(folder: Path) -> Sites | None:
    """As they were written; None where nothing was measured at the clients, DataError if the file is damaged."""
    path = folder / FILE
    try:
        with open(path, encoding="utf-8", newline="", opener=no_links) as file:
            title, *lines = csv.reader(file, strict=True)
        if not {*WORDS, *COUNTS} <= set(title) or any(len(line) != len(title) for line in lines):
            raise ValueError("its lines do not have the columns that the first one names")
        return Sites({name: list(map(_reader(name), [line[i] for line in lines])) for i, name in enumerate(title)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def write_division(folder: Path, data: FederatedData) -> None:
    """How many training samples of each class a site has, where labels are classes and the table is not too long."""
    if not PROBLEMS[data.problem].one_class or len(data) * data.num_classes > LARGEST:
        return
    cells = owners(data.train) * data.num_classes + data.train_pool.y.cpu().numpy()[data.train.order]
    counts = np.bincount(cells, minlength=len(data) * data.num_classes).reshape(len(data), data.num_classes)
    names = data.classes if len(data.classes) == data.num_classes else [str(c) for c in range(data.num_classes)]
    write_atomic(folder / DIVISION, as_text({"classes": list(names), "counts": counts.tolist()}))


def _text(value: float | None) -> str:
    return "" if value is None else repr(value)


def _quoted(word: str) -> str:
    """A word as CSV has it: between quotes where it must be, and quotes in it twice."""
    return '"' + word.replace('"', '""') + '"' if any(c in word for c in ',"\r\n') else word


def _reader(column: str) -> Callable[[str], Any]:
    if column in WORDS:
        return str
    return int if column in COUNTS else lambda text: float(text) if text else None
