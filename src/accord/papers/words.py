"""A table in words: Markdown for pages and terminals, and sentences on whether the paper's order holds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accord.papers.experiment import Column, Place, Row
from accord.papers.numbers import VALUES
from accord.papers.table import Cell, Table, ahead, by_seed

LEGEND = (
    "Paper: as printed. Ours: mean ± sample deviation over the seeds that went furthest, in brackets the difference to "
    "the paper; a number in square brackets is the round it was read at, where other rows of the column went further. "
    "Methods are put in order at the last round that both the paper's own and its baseline reached, each two over the "
    "seeds both have; a lead is positive where a method is better."
)


def tables(table: Table, only_with_results: bool = False) -> str:
    """One Markdown table for each group of columns."""
    groups: dict[str, list[Column]] = {}
    for column in table.columns:
        if not only_with_results or table.has(column):
            groups.setdefault(column.group, []).append(column)
    return "\n\n".join(f"**{title}**\n\n{_table(table, columns)}" for title, columns in groups.items())


def _table(table: Table, columns: Sequence[Column]) -> str:
    """Two cells for each column; the paper's is left out where it printed nothing at all."""
    printed = {c.key for c in columns if any(row.printed[c.key].value is not None for row in table.experiment.rows)}
    head = ["method", "seeds", "rounds"]
    for column in columns:
        head += [f"{column.title}, paper"] * (column.key in printed) + [f"{column.title}, ours"]
    lines = [head, ["---"] * len(head)]
    for row in table.experiment.rows:
        cells = [table.cells.get((row.name, column.key)) for column in columns]
        here = [cell for cell in cells if cell is not None]
        if here:
            seeds = max(len(cell.records) + len(cell.diverged) for cell in here)
            line = [row.title, str(seeds or "-"), _span([cell.rounds for cell in here if cell.all])]
            for cell, column in zip(cells, columns, strict=True):
                line += [cell.printed.text if cell else ""] * (column.key in printed)
                line.append(ours(table, cell, column) if cell else "")
            lines.append(line)
    return "\n".join("| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines)


def _span(rounds: Sequence[int]) -> str:
    if not rounds:
        return "-"
    return str(rounds[0]) if len(set(rounds)) == 1 else f"{min(rounds)} to {max(rounds)}"


def ours(table: Table, cell: Cell, column: Column) -> str:
    """Our part of a cell."""
    lost = f"{len(cell.diverged)} diverged" if cell.diverged else ""
    if not cell.records:
        return lost and f"{lost} [{_span([record.rounds_done for record in cell.diverged])}]"
    if cell.ours is None:
        return "not reached" if column.number.target is not None else "-"
    text = column.number.write(cell.ours.mean)
    if cell.ours.std is not None:
        text += f" ± {column.number.write(cell.ours.std)}"
    if cell.difference is not None:
        sign = "+" if cell.difference >= 0 else "−"
        text += f" ({sign}{column.number.write(abs(cell.difference))})"
    if cell.rounds < table.rounds(column):
        text += f" [{cell.rounds}]"
    if any(record.old for record in cell.records):
        text += " †"
    return f"{text}, {lost}" if lost else text


def orders(table: Table) -> list[str]:
    """A sentence for each column in which rows can be compared."""
    own, baseline = (table.experiment.row(name).title for name in (table.experiment.own, table.experiment.baseline))
    said = []
    for column in table.columns:
        order = table.order(column)
        if order is None:
            continue
        words = [f"{order.kept} of {order.pairs} pairs of methods in the paper's order"]
        if order.best_printed:
            here = {True: "and here", False: "not here", None: "here level with others"}[order.best_ours]
            where = f"in the paper{'' if order.best_ours else ','} {here}"
            words.append(f"of the {order.compared} compared {own} is the best {where}")
        if order.lead_printed is not None and order.lead_ours is not None:
            leads = (signed(column, order.lead_printed), signed(column, order.lead_ours))
            words.append(f"{own} against {baseline}: {leads[0]} in the paper, {leads[1]} here")
        said.append(f"{column.group}, {column.title}, at round {order.at}: {'; '.join(words)}.")
    return said


def leads(table: Table) -> str:
    """Of tables that no paper has: by row, how far it leads its baseline on average, where, and where least.

    A run counts where it came as far as the baseline's; one that stopped early or diverged leads nowhere. Rows that
    count in more columns come first: means over different columns are no order.
    """
    one = table.experiment
    found: dict[str, list[float | None]] = {}
    columns = [c for c in table.columns if (base := table.cells.get((one.baseline, c.key))) and base.ours]
    if one.own != one.baseline or len(columns) < 2:
        return ""
    for row in one.rows:
        if row.name != one.baseline and any(table.cells[row.name, c.key].all for c in columns):
            found[row.name] = [_lead(table, row, column) for column in columns]
    lines = [["method", f"mean lead over {one.row(one.baseline).title}", "ahead in", "least lead"], ["---"] * 4]
    for name, values in sorted(found.items(), key=lambda item: (item[1].count(None), -_mean(item[1]))):
        known = [value for value in values if value is not None]
        cells = [signed(columns[0], value) for value in ([_mean(known), min(known)] if known else [])] or ["-", "-"]
        lost = f" ({len(columns) - len(known)} not run to the end)" if len(known) < len(columns) else ""
        where = f"{sum(value > 0 for value in known)} of {len(known)}{lost}"
        lines.append([one.row(name).title, cells[0], where, cells[1]])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if found else ""


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else -math.inf


def _lead(table: Table, row: Row, column: Column) -> float | None:
    """In points of the column; None where a run is missing, did not come as far, or diverged."""
    ours, base = table.cells.get((row.name, column.key)), table.cells[table.experiment.baseline, column.key]
    if ours is None:
        return None
    lead = ahead(*(by_seed(column, cell.records, base.rounds) for cell in (ours, base)))
    return lead if lead is None or column.number.better == "higher" else -lead


def signed(column: Column, lead: float) -> str:
    """A lead with its sign."""
    return f"{'+' if lead >= 0 else '−'}{column.number.write(abs(lead))}"


def gaps(table: Table) -> list[str]:
    """Rows that were not run or cannot be run yet, by place; places of which nothing was; seeds that stopped early."""
    said: dict[str, list[str]] = {}
    for place in {column.place.name: column.place for column in table.columns}.values():
        reasons = _reasons(table, place)
        if reasons and not any(table.cells[row.name, c.key].all for row, c in _in(table, place)):
            whole = set(reasons.values()) if len(set(reasons.values())) == 1 else {"not run"}
            said.setdefault(f"every row {whole.pop()}", []).append(place.name)
            continue
        for title, reason in reasons.items():
            said.setdefault(f"{place.name}, {reason}", []).append(title)
    for column in table.columns:
        for name, cell in table.of_column(column).items():
            for text in _rarely(table, column, name, cell):
                titles = said.setdefault(text, [])
                titles += [title for title in [table.experiment.row(name).title] if title not in titles]
            known = said.setdefault(f"{column.place.name}, seeds that did not get as far as others", [])
            texts = [f"{table.experiment.row(name).title} seed {r.seed} (round {r.rounds_done})" for r in cell.shorter]
            known += [text for text in texts if text not in known]
    return [f"{where}: {', '.join(rows)}" for where, rows in said.items() if rows]


def _rarely(table: Table, column: Column, row: str, cell: Cell) -> list[str]:
    """Where runs were looked at less often than asked: a mean over evaluations is then one over other rounds."""
    if not cell.all or (column.number.metric not in VALUES and column.number.target is None):
        return []
    every = table.experiment.config(table.experiment.row(row), column.place, 0, table.scale).evaluate.every
    steps = sorted({record.step for record in cell.all if record.step > every})
    return [f"{column.place.name}, looked at every {step} rounds, the others every {every}" for step in steps]


def _in(table: Table, place: Place) -> list[tuple[Row, Column]]:
    """The cells of a place."""
    rows = [row for row in table.experiment.rows if table.experiment.holds(row, place)]
    return [(row, column) for row in rows for column in table.columns if column.place is place]


def _reasons(table: Table, place: Place) -> dict[str, str]:
    """Why nothing is there of a row, by its title."""
    found: dict[str, str] = {}
    done = {row.name for row, column in _in(table, place) if table.cells[row.name, column.key].all}
    for row, _ in _in(table, place):
        if row.name not in done:
            why = table.experiment.obstacle(row, place)
            found[row.title] = f"cannot be run yet: {why}" if why else "not run"
    return found
