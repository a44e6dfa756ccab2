"""Rows for other programs: LaTeX with booktabs, CSV with bare numbers; and differences as tables."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accord.report.differences import HEADINGS, Differences
from accord.report.tables import Row, cells, shown

if TYPE_CHECKING:
    from rich.table import Table

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def latex(rows: Sequence[Row]) -> str:
    """A `tabular` for the booktabs package; the best of a column are in bold."""
    columns = shown(rows)
    titles = ["algorithm", "runs", *(column.title for column in columns)]
    lines = [
        r"\begin{tabular}{lr" + "r" * (len(titles) - 2) + "}",
        r"\toprule",
        " & ".join(map(_escaped, titles)) + r" \\",
        r"\midrule",
    ]
    for row, written in zip(rows, cells(rows, columns), strict=True):
        texts = [_number(text, best) for text, best in written]
        lines.append(" & ".join([_escaped(row.algorithm), str(len(row.seeds)), *texts]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _number(text: str, best: bool) -> str:
    written = _escaped(text).replace("±", r"$\pm$")
    return rf"\textbf{{{written}}}" if best else written


def _escaped(text: str) -> str:
    return re.sub(r"[\\~^&%$#_{}]", lambda found: _SPECIAL[found[0]], text)


def comma_separated(rows: Sequence[Row]) -> str:
    """A line per row with all digits: mean and sample standard deviation of every column, by its key."""
    columns = shown(rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["algorithm", "runs", *(name for c in columns for name in (c.key, f"{c.key}_std"))])
    for row in rows:
        known = [row.cells.get(column.key) for column in columns]
        numbers = [value for cell in known for value in ((cell.mean, cell.std) if cell is not None else (None, None))]
        writer.writerow([row.algorithm, len(row.seeds), *numbers])
    return file.getvalue()


def differences_markdown(apart: Differences) -> str:
    """Rows against the baseline, and what the interval is."""
    lines = [f"{apart.title[0].upper()}{apart.title[1:]}:", "", f"| {' | '.join(HEADINGS)} |", "|---" * 5 + "|"]
    for row in apart.rows:
        name = row.algorithm.replace("|", "\\|")
        lines.append(f"| {' | '.join([name, *apart.cells(row)])} |")
    return "\n".join([*lines, "", apart.remark]) + "\n"


def differences_table(apart: Differences) -> Table:
    """The same for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=apart.title, title_justify="left", caption=apart.remark, caption_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "algorithm" else "right", overflow="fold")
    for row in apart.rows:
        table.add_row(Text(row.algorithm), *(Text(text) for text in apart.cells(row)))
    return table
