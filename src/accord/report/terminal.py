"""Tables on a terminal. Where it is narrow they have fewer columns, and say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from accord.measures import Column
from accord.report.tables import COSTS, Row, cells, remarks, shown

if TYPE_CHECKING:
    from rich.table import Table

READ_OFF = ("best_accuracy", "top5_accuracy", "personal_before")  # of a curve whose end is there: the first to go
GAP = 2  # blanks between two columns of a narrow table, which has no lines
NAME = 20  # characters of a name that a narrow table keeps on one line


def rich_table(rows: Sequence[Row], width: int | None = None) -> Table:
    """One row per algorithm; `width` is what there is room for, None: for everything."""
    from rich.text import Text

    columns = shown(rows)
    narrow = width is not None and framed(_widths(rows, columns)) > width
    fitting = _fitting(rows, columns, width) if width is not None and narrow else columns
    names, runs, *widths = _widths(rows, fitting)
    counted = width is None or not narrow or bare([names, runs, *widths]) <= width
    caption = f"mean ± sample standard deviation over seeds{remarks(fitting)}"
    if hidden := len(columns) - len(fitting):
        caption += f"; {hidden} more column{'s' * (hidden > 1)} in table.md, or on a wider terminal"
    table = empty_table(narrow, caption)
    table.add_column("algorithm", width=names if narrow else None)
    if counted:
        table.add_column("runs", justify="right")
    for column, wide in zip(fitting, widths, strict=True):
        table.add_column(column.title, justify="right", width=wide if width is not None else None)
    for row, texts in zip(rows, cells(rows, fitting), strict=True):
        numbers = [Text(text, style="bold" if best else "") for text, best in texts]
        table.add_row(Text(row.algorithm), *([Text(str(len(row.seeds)))] if counted else []), *numbers)
    return table


def empty_table(narrow: bool, caption: str = "") -> Table:
    """With lines where there is room for them."""
    from rich import box
    from rich.table import Table

    style = {"box": None, "padding": (0, GAP, 0, 0), "pad_edge": False} if narrow else {"box": box.HEAVY_HEAD}
    return Table(caption=caption or None, caption_justify="left", **style)


def framed(widths: Iterable[int]) -> int:
    """Of a table with lines: a blank on both sides of a cell, and a line."""
    return sum(width + 3 for width in widths) + 1


def bare(widths: Iterable[int]) -> int:
    """Of a table without lines."""
    return sum(width + GAP for width in widths)


def _widths(rows: Sequence[Row], columns: Sequence[Column]) -> list[int]:
    """Of the names, the number of runs, and each column: a title may be broken between words, a number may not."""
    titles = [max(map(len, column.title.split())) for column in columns]
    texts = [[len(text) for text, _ in line] for line in cells(rows, columns)]
    names = min(max(len("algorithm"), *(len(row.algorithm) for row in rows)), NAME)
    return [names, len("runs"), *map(max, zip(titles, *texts, strict=True))]


def _fitting(rows: Sequence[Row], columns: Sequence[Column], width: int) -> list[Column]:
    """The columns there is room for: costs go first, then the others from the right, last what models are judged by."""
    pair = {key for column in columns if column.beside for key in (column.key, column.beside)}
    judged = [c for c in columns if c.key in pair or c is columns[0]]
    others = [c for c in columns if c not in judged]
    kept = [*judged, *sorted(others, key=lambda c: (c in COSTS, c.key in READ_OFF))]
    names, _, *widths = _widths(rows, columns)
    wide = dict(zip((c.key for c in columns), widths, strict=True))
    while len(kept) > 1 and bare([names, *(wide[c.key] for c in kept)]) > width:
        del kept[-1 if len(kept) > len(judged) or len(judged) < 3 else 0]
    return [c for c in columns if c in kept]
