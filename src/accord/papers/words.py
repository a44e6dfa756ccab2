"""A table in words: Markdown for pages and terminals, and sentences on whether the paper's order holds."""

from __future__ import annotations

from collections.abc import Sequence

from accord.papers.experiment import Column
from accord.papers.table import Cell, Table

LEGEND = (
    "Paper: as printed. Ours: mean ± sample deviation over seeds, in brackets the difference to the paper. A number in "
    "square brackets after it is the round it was read at, where other rows of the column went further."
)


def tables(table: Table) -> str:
    """One Markdown table for each group of columns."""
    groups: dict[str, list[Column]] = {}
    for column in table.columns:
        groups.setdefault(column.group, []).append(column)
    return "\n\n".join(f"**{title}**\n\n{_table(table, columns)}" for title, columns in groups.items())


def _table(table: Table, columns: Sequence[Column]) -> str:
    head = ["method", "seeds", "rounds"]
    for column in columns:
        head += [f"{column.title}, paper", f"{column.title}, ours"]
    lines = [head, ["---"] * len(head)]
    for row in table.experiment.rows:
        cells = [table.cells.get((row.name, column.key)) for column in columns]
        here = [cell for cell in cells if cell is not None]
        if here:
            seeds = max(len(cell.records) for cell in here)
            rounds = max(cell.rounds for cell in here)
            texts = [text for cell, column in zip(cells, columns, strict=True) for text in _pair(table, cell, column)]
            lines.append([row.title, str(seeds or "-"), str(rounds or "-"), *texts])
    return "\n".join("| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines)


def _pair(table: Table, cell: Cell | None, column: Column) -> tuple[str, str]:
    if cell is None:
        return "", ""
    return cell.printed.text, ours(table, cell, column)


def ours(table: Table, cell: Cell, column: Column) -> str:
    """Our part of a cell."""
    if not cell.records:
        return ""
    if cell.ours is None:
        return "diverged" if cell.diverged else "not reached" if column.number.target is not None else "-"
    text = column.number.write(cell.ours.mean)
    if cell.ours.std is not None:
        text += f" ± {column.number.write(cell.ours.std)}"
    if cell.difference is not None:
        sign = "+" if cell.difference >= 0 else "−"
        text += f" ({sign}{column.number.write(abs(cell.difference))})"
    if cell.rounds < table.rounds(column):
        text += f" [{cell.rounds}]"
    return text + (" diverged" if cell.diverged else "")


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
            words.append(f"{own} is {'the best here too' if order.best_ours else 'the best there, not here'}")
        if order.lead_printed is not None and order.lead_ours is not None and own != baseline:
            leads = (_signed(column, order.lead_printed), _signed(column, order.lead_ours))
            words.append(f"{own} against {baseline}: {leads[0]} in the paper, {leads[1]} here")
        said.append(f"{column.group}, {column.title}: {'; '.join(words)}.")
    return said


def _signed(column: Column, lead: float) -> str:
    return f"{'+' if lead >= 0 else '−'}{column.number.write(abs(lead))}"


def gaps(table: Table) -> list[str]:
    """Rows of which nothing was run, or that cannot be run yet, and why."""
    experiment = table.experiment
    said: dict[str, list[str]] = {}
    places = {column.place.name: column.place for column in table.columns}
    for place in places.values():
        for row in experiment.rows:
            if experiment.holds(row, place):
                cells = [table.cells[row.name, c.key] for c in table.columns if c.place is place]
                if not any(cell.records for cell in cells):
                    why = experiment.obstacle(row, place)
                    reason = f"cannot be run yet: {why}" if why else "not run"
                    said.setdefault(f"{place.name}, {reason}", []).append(row.title)
    return [f"{where}: {', '.join(rows)}" for where, rows in said.items()]
