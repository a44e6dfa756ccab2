"""Result pages, one per paper, and their index: written from records, experiments and settings, nothing by hand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from accord.engine.files import write_atomic
from accord.errors import ConfigError
from accord.papers import shelf, words
from accord.papers.drawing import Drawn
from accord.papers.experiment import Experiment, Setting
from accord.papers.figures import draw
from accord.papers.readings import filled
from accord.papers.records import OLD, Record, Records
from accord.papers.reproduction import check_writable, seeds_of
from accord.papers.singles import broken, repeats
from accord.papers.table import Table
from accord.papers.verdicts import verdict
from accord.papers.wanted import flat

WIDTH = 120
CLOCK = (
    "Seconds on the clock are summed over runs that shared the device; a run's seconds of the device are the time "
    "divided at every moment by the runs at work (a dash: not noted)."
)
EARLIER = "Numbers with † are of version 0.1, whose clients drew other batches than those of later ones."
CAPTIONS = {
    "rounds": "Accuracy over rounds",
    "seconds": "Accuracy over seconds of the device",
    "bytes": "Accuracy over what was sent, both ways",
    "loss": "Training loss over rounds",
    "clients": "Clients' accuracies in order, at the last evaluation",
    "sweep": "Over what the columns differ in",
    "newcomers": "New clients",
    "cosines": "Cosine of each client's update with the server's step",
    "training": "Accuracy on the clients' training data over rounds",
    "tsne": "Features of test samples, t-SNE",
    "local-tsne": "Features of the global and of a client's model, t-SNE",
    "outputs": "Answers of the clients' models on all test samples",
}


def write_pages(results: Path, docs: Path, papers: Sequence[str] | None = None) -> list[Path]:
    """The pages of `papers` (None: of all that have records), their figures, and the index."""
    records = Records.of([results])
    if not records.by_question:
        raise ConfigError(f"--results {results}: there are no records in it to write pages from")
    check_writable(docs=docs)
    tables = all_tables(records)
    written = []
    for paper in papers if papers is not None else list(shelf.PAPERS):
        known = [table for table in tables if table.experiment.paper == paper]
        if any(map(enough, known)):
            drawn = {table.experiment.id: figures(table, docs / "figures") for table in known if enough(table)}
            _sweep_out(docs / "figures", known, drawn)
            write_atomic(docs / f"{paper}.md", page(paper, known, records, drawn, verdict(paper, tables)))
            written.append(docs / f"{paper}.md")
    write_atomic(docs / "README.md", index(tables))
    return [*written, docs / "README.md"]


def _sweep_out(folder: Path, tables: Sequence[Table], drawn: Mapping[str, Sequence[Drawn]]) -> None:
    """Figures of these experiments that are drawn no more."""
    kept = {figure.name for some in drawn.values() for figure in some}
    for table in tables:
        for kind in CAPTIONS:
            name = f"{table.experiment.id}-{kind}"
            for ending in ("png", "svg") if name not in kept else ():
                (folder / f"{name}.{ending}").unlink(missing_ok=True)


def all_tables(records: Records) -> list[Table]:
    """Of every experiment, with all seeds there are."""
    seeds = seeds_of(records)
    return [Table.of(one, records, seeds) for one in shelf.experiments()]


def figures(table: Table, folder: Path) -> list[Drawn]:
    """Those its records are enough for."""
    made = [draw(table, kind, folder) for kind in table.experiment.figures]
    return [one for one in made if one is not None]


def page(
    paper: str, tables: Sequence[Table], records: Records, drawn: Mapping[str, Sequence[Drawn]], short: str = ""
) -> str:
    """All of a paper's experiments: what they say in short, those with results, then what is left."""
    shown = [table for table in tables if enough(table)]
    parts = [
        f"# {shelf.PAPERS[paper]}",
        *([wrapped(f"**In short.** {short}")] if short else []),
        wrapped(
            "Written by `accord reproduce --pages` from the records in `results/`, the settings in "
            "`src/accord/papers/settings/` and the experiments in `src/accord/papers/experiments/`; what was measured "
            "here is filled in, never typed. Test data, unless an experiment says validation data. Every run that was "
            "made is in a table or named below it."
        ),
        wrapped(words.LEGEND),
    ]
    for table in shown:
        parts += section(table, drawn.get(table.experiment.id, ()))
    parts += ["## The settings, and how they were read", *settings(shown)]
    asides = {
        "Records left out": [
            wrapped(f"- `{path}`, which this version cannot read: {why}", "  ")
            for path, why in records.unreadable.items()
        ],
        "Runs that broke off": broken(shown, records),
        "Two runs of one configuration and seed": repeats(shown, records),
    }
    for title, said in asides.items():
        parts += [f"## {title}", *said] if said else []
    parts += ["## What it took", made_with([record for table in shown for record in table.records])]
    left = [table for table in tables if not enough(table)]
    if left:
        lines = [
            f"- `{table.experiment.id}`: {table.experiment.title}, {table.experiment.what}{_why(table)}"
            for table in left
        ]
        parts += ["## Not run, or too little of it", "\n".join(wrapped(line, "  ") for line in lines)]
    return "\n\n".join(parts) + "\n"


def enough(table: Table) -> bool:
    """Whether a table says something of its own: two rows, or two points of a sweep."""
    rows = {row for (row, _), cell in table.cells.items() if cell.all}
    points = {column.x for column in table.columns if column.x is not None and table.has(column)}
    points |= {x for row in rows if (x := table.experiment.row(row).x) is not None}
    return len(points) > 1 if table.experiment.axis else len(rows) > 1


def section(table: Table, drawn: Sequence[Drawn]) -> list[str]:
    """One experiment: command, table, order, figures, words, gaps."""
    one = table.experiment
    seeds = ",".join(str(seed) for seed in sorted({record.seed for record in table.records}))
    parts = [f"## {one.id}: {one.title}", wrapped(one.what[0].upper() + one.what[1:] + ".")]
    parts.append(f"    accord reproduce {one.id} --seeds {seeds}")
    if one.like:  # the same table stands above
        return [*parts, *_shown(one, drawn)]
    parts.append(words.tables(table, only_with_results=True))
    orders = words.orders(table)
    if orders:
        parts.append("\n".join(wrapped(f"- {line}", "  ") for line in orders))
    parts += [lead for lead in [words.leads(table)] if lead]
    parts += _shown(one, drawn)
    if one.text:
        parts += [
            wrapped(" ".join(part.split()), "  " * part.startswith("- ")) for part in _parts(filled(one.text, table))
        ]
    gaps = words.gaps(table)
    if gaps:
        parts.append("\n".join([wrapped("Missing:"), "", *(wrapped(f"- {line}.", "  ") for line in gaps)]))
    return parts


def _shown(one: Experiment, drawn: Sequence[Drawn]) -> list[str]:
    return [f"![{CAPTIONS[figure.kind]}, {one.id}](figures/{figure.name}.svg)" for figure in drawn]


def settings(tables: Sequence[Table]) -> list[str]:
    """What the runs were made with, and what the paper leaves open."""
    used: dict[str, Setting] = {}
    for table in tables:
        for column in table.columns:
            if table.has(column):
                used.setdefault(column.place.setting.name, column.place.setting)
    parts = []
    for one in used.values():
        parts.append(f"**{one.title}** (`{one.name}`)")
        said = [f"{name}={value}" for name, value in flat(one.config)]
        parts.append(wrapped("`" + "`, `".join(said) + "`"))
        if one.readings:
            lines = ["| what | read as | why |", "|---|---|---|"]
            lines += [f"| {r.what} | {r.choice} | {r.why} |" for r in one.readings]
            parts.append("\n".join(lines))
    return parts


def made_with(records: Iterable[Record]) -> str:
    """Runs and seconds by version and hardware."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in {record.path: record for record in records}.values():
        machine = record.fields.get("hardware", {})
        where = machine.get("gpu") or f"{machine.get('cores', '?')} cores"
        groups.setdefault((record.version, where, machine.get("note", "")), []).append(record)
    head = ["Accord", "on", "remark", "runs", "rounds", "seconds on the clock", "seconds of the device"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for (version, where, note), known in sorted(groups.items()):
        rounds, seconds = sum(record.rounds_done for record in known), sum(record.seconds for record in known)
        share = sum(record.device_seconds for record in known)
        times = " | ".join(f"{time:.0f}" if time else "-" for time in (seconds, share))
        numbers = f"{len(known)} | {rounds} | {times}"
        said = note.replace("|", "\\|")
        lines.append(f"| {version} | {where} | {said} | {numbers} |")
    notes = [CLOCK, *([EARLIER] if any(version.startswith(OLD) for version, _, _ in groups) else [])]
    return "\n\n".join(["\n".join(lines), *map(wrapped, notes)])


def index(tables: Sequence[Table]) -> str:
    """All experiments, paper by paper."""
    parts = [
        "# Results",
        wrapped(
            "Every table and figure of the five papers (and of a report on one of them), as far as it was run. Written "
            "by `accord reproduce --pages` from the records in `results/`; `accord reproduce ID` runs what is missing."
        ),
    ]
    for paper, title in shelf.PAPERS.items():
        known = [table for table in tables if table.experiment.paper == paper]
        any_results = any(map(enough, known))
        parts.append(f"## {f'[{title}]({paper}.md)' if any_results else title}")
        parts += [wrapped(short)] if any_results and (short := verdict(paper, tables)) else []
        lines = [
            "| id | what | runs begun | lead of the own method over its baseline, ours (paper) |",
            "|---|---|---|---|",
        ]
        lines += [_line(table) for table in known]
        parts.append("\n".join(lines))
    parts.append("## Other pages")
    parts.append("\n".join(f"- [{title}]({name})" for name, title in OTHERS.items()))
    return "\n\n".join(parts) + "\n"


OTHERS = {
    "five_papers.md": "FedAvg against the five papers' methods, small federations",
    "all_methods.md": "All methods on one federation",
    "tuned_demo.md": "The demo, tuned",
    "diagnosed.md": "What helps which skew, in small",
}


def _line(table: Table) -> str:
    one: Experiment = table.experiment
    leads = []
    for column in table.columns:
        order = table.order(column)
        if order is not None and order.lead_ours is not None and order.lead_printed is not None:
            ours, theirs = (words.signed(column, lead) for lead in (order.lead_ours, order.lead_printed))
            leads.append(f"{column.group}, {column.title}: {ours} ({theirs})")
    done, all_of_them = table.runs
    return f"| `{one.id}` | {one.title}, {one.what} | {done} of {all_of_them} | {'; '.join(leads)} |"


def _why(table: Table) -> str:
    one = table.experiment
    reasons = {one.obstacle(row, column.place) for row in one.rows for column in one.columns}
    reasons.discard("")
    every = all(one.obstacle(row, column.place) for row in one.rows for column in one.columns)
    return f" (cannot be run yet: {'; '.join(sorted(reasons))})" if every else ""


def _parts(text: str) -> list[str]:
    """Paragraphs, and the items of lists."""
    return [part for block in text.split("\n\n") for part in block.replace("\n- ", "\n\n- ").split("\n\n")]


def wrapped(text: str, indent: str = "") -> str:
    """At the width of all pages."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
