"""`accord.reproduce`: run what is missing of a paper's experiment, and put the numbers beside the printed ones."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import get_args

from accord.errors import AccordError, ConfigError
from accord.papers import shelf, words
from accord.papers.asked import Asked
from accord.papers.desk import Desk, Here, Say, Worker, start_sharing
from accord.papers.experiment import Experiment, Scale
from accord.papers.foreseen import foreseen
from accord.papers.keeping import hardware, record_of, write_record
from accord.papers.records import Record, Records, question, read_record
from accord.papers.supplies import lacking
from accord.papers.table import Table
from accord.papers.turns import shares
from accord.papers.wanted import Wanted, check_free, for_machine, missing
from accord.study.checks import check_distinct, several, whole

RUNS, RESULTS = Path("runs/reproduce"), Path("results")


@dataclass(frozen=True)
class Reproduction:
    """An experiment's table, and what is missing in it."""

    table: Table
    missing: Sequence[str]  # labels of the runs that are still to do
    foreseen: str = ""  # what these will take
    failed: dict[str, str] = field(default_factory=dict)  # those that broke now, and why
    folders: Sequence[Path] = ()  # of its runs that came to their end here
    unreadable: Mapping[Path, str] = field(default_factory=dict)  # records that say nothing to this version, and why

    @property
    def text(self) -> str:
        """What is printed: the table, the order, the gaps."""
        experiment = self.table.experiment
        parts = [f"{experiment.id}: {experiment.title}, {experiment.what}", words.tables(self.table), words.LEGEND]
        if self.table.scale == "smoke":
            parts.append("A smoke test: tiny runs on a few digits, so that the numbers mean nothing.")
        parts += ["\n".join(words.orders(self.table)), words.leads(self.table)]
        if self.missing:
            parts.append(f"Still to run ({len(self.missing)}): {'; '.join(self.missing)}. {self.foreseen}".rstrip())
        parts.append("\n".join(line for line in words.gaps(self.table) if "cannot be run yet" in line))
        together: dict[str, list[str]] = {}
        for label, why in self.failed.items():
            together.setdefault(why, []).append(label)
        parts += [f"failed: {'; '.join(labels)}: {why}" for why, labels in together.items()]
        parts += [f"left out: {path}, which this version cannot read: {why}" for path, why in self.unreadable.items()]
        return "\n\n".join(part for part in parts if part)


def reproduce(
    id: str | Experiment,
    *,
    rows: Sequence[str] = (),
    places: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    scale: Scale = "full",
    device: str = "auto",
    jobs: int = 1,
    minutes: float | None = None,
    runs: Path | str = RUNS,
    results: Path | str = RESULTS,
    sets: Sequence[str] = (),
    mps: bool = False,
    note: str = "",
    only_show: bool = False,
    say: Say = print,
) -> Reproduction:
    """Run what is missing, the most informative runs first; the same call goes on after a stop.

    Args:
        id: of the experiment, see `accord list experiments`; or one of your own.
        rows: names of rows; none: all of them.
        places: names of federations, as in "fedbr in br-cifar10"; none: all of them.
        seeds: the first one of all rows is run before the next one of any.
        scale: full, as the paper has it; short, fewer rounds; smoke, a look at every row within a minute.
        device: cpu, cuda or auto.
        jobs: runs at a time, each in a process of its own.
        minutes: leave in that time; what is at work is stopped and goes on with the next call.
        runs: folder of the runs, in which they can be resumed.
        results: folder of the records; those of a smoke test stay with its runs.
        sets: changes of the machine's settings, such as "data.dir=..." or "compile=false".
        mps: let the runs' kernels share the GPU.
        note: a remark on the hardware for the records.
        only_show: run nothing.
        say: is told what happens.
    """
    experiment = id if isinstance(id, Experiment) else shelf.experiment(id)
    (only,) = reproduce_all(
        [Asked(experiment, rows, places)],
        seeds=seeds,
        scale=scale,
        device=device,
        jobs=jobs,
        minutes=minutes,
        runs=runs,
        results=results,
        sets=sets,
        mps=mps,
        note=note,
        only_show=only_show,
        say=say,
    )
    return only


def reproduce_all(
    asked: Sequence[Asked],
    *,
    seeds: Sequence[int] = (0,),
    scale: Scale = "full",
    device: str = "auto",
    jobs: int = 1,
    minutes: float | None = None,
    runs: Path | str = RUNS,
    results: Path | str = RESULTS,
    sets: Sequence[str] = (),
    mps: bool = False,
    note: str = "",
    only_show: bool = False,
    say: Say = print,
) -> list[Reproduction]:
    """Several experiments as one queue, in their order: a machine does not wait for the last run of one of them."""
    _check(scale, device, jobs, minutes, note)
    check_distinct(several(seeds, "seeds"), "seeds")
    check_free(sets)
    runs, results = Path(runs) / scale, Path(results) if scale != "smoke" else Path(runs) / scale / "records"
    small = scale == "smoke"
    machine = for_machine("cpu" if small and device == "auto" else device, one_core=small or jobs > 1)
    machine += ["checkpoint.every=0", "compile=false"] if small else []  # over before it could be stopped
    settings = [*sets, *_not_given(machine, sets)]
    parts = [one.runs(seeds, scale, settings) for one in asked]
    queue: dict[Path, Wanted] = {}
    for run in (run for part in parts for run in part):
        queue.setdefault(run.entry(runs).folder, run)
    failed: dict[Path, str] = {}
    left = missing([*queue.values()], Records.of([results]))
    if left and not only_show:
        until = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
        check_writable(runs=runs, results=results)
        say(f"{len(queue)} runs, {len(queue) - len(left)} of them done before")
        reasons = lacking(left)
        failed |= {run.entry(runs).folder: why for run, why in zip(left, reasons, strict=True) if why}
        if failed:
            say(f"{len(failed)} of them left out, their data are not to be had: see below the table")
        if mps:
            say(start_sharing())
        keeper = _Keeper(runs, results, hardware(note), failed)
        worker: Worker = Here(runs, keeper) if small else Desk(runs, jobs, keeper, _timed(say))
        worker.work([run for run, why in zip(left, reasons, strict=True) if not why], until)
    records = Records.of([results])
    tables = [Table.of(one.experiment, records, seeds, scale, one.places) for one in asked]
    return [_outcome(table, part, records, runs, failed) for table, part in zip(tables, parts, strict=True)]


def _outcome(
    table: Table, asked: Sequence[Wanted], records: Records, runs: Path, failed: Mapping[Path, str]
) -> Reproduction:
    folders = {one.entry(runs).folder: one.label for one in asked}
    left = missing(asked, records)
    return Reproduction(
        table,
        [one.label for one in left],
        foreseen(left, records) if table.scale != "smoke" else "",
        {label: failed[folder] for folder, label in folders.items() if folder in failed},
        [folder for folder in folders if (folder / "summary.json").is_file()],
        records.unreadable,
    )


@dataclass(frozen=True)
class _Keeper:
    """Writes the record of a run that has ended or was stopped."""

    runs: Path
    results: Path
    hardware: dict[str, str]
    failed: dict[Path, str]  # by the run's folder

    def __call__(self, run: Wanted, diverged: str, failed: str) -> None:
        folder = run.entry(self.runs).folder
        if failed:
            self.failed[folder] = failed
        fields = record_of(folder, run.labels, self.hardware, diverged)
        if fields is None:
            return
        share = shares(self.runs).get(folder.name, 0.0)
        costs = {"gpu_seconds": round(share, 1)} if share and "gpu" in self.hardware else {}
        path = run.record_path(self.results)
        self._keep(Record(path, fields | costs), self._known(path, run))

    def _keep(self, record: Record, known: Record | None) -> None:
        """The one that went further in the row's file; the other is kept beside it if both are results."""
        less = known is not None and known.rounds_done > record.rounds_done
        if known is not None and _two_results(known, record):
            aside = _free(record.path)
            if less:
                write_record(aside, record.fields)
            else:
                known.path.replace(aside)
        if not less:
            write_record(record.path, record.fields)

    def _known(self, path: Path, run: Wanted) -> Record | None:
        """What the file holds, if it is of the same run; another run's record goes aside, with all that it says."""
        known = read_record(path) if path.is_file() else None
        if known is None:
            return None
        try:
            same = question(known.config) == run.question
        except AccordError:  # of a version whose settings this one does not have: kept beside the new one
            known.path.replace(known.path.with_suffix(".unread"))
            return None
        if not same:  # the experiment asks for something else since
            known.path.replace(_free(known.path))
        return known if same else None


def _two_results(one: Record, other: Record) -> bool:
    """Whether they say different things: one was judged after fewer rounds, or one diverged and the other is not the
    same run, seen earlier or later."""
    if one.fields["rounds"] != other.fields["rounds"] and (one.judged_at_its_end or other.judged_at_its_end):
        return True
    if not (one.diverged or other.diverged):
        return False
    first, second = (
        {seen["round"]: (seen.get("accuracy"), seen.get("loss")) for seen in record.fields["evaluations"]}
        for record in (one, other)
    )
    both = first.keys() & second.keys()
    return any(first[round] != second[round] for round in both) if both else one.broke_off != other.broke_off


def _free(path: Path) -> Path:
    """Where a repeated run's record goes."""
    names = (path.with_suffix(f".repeat{number or ''}.json") for number in count())
    return next(name for name in names if not name.exists())


def seeds_of(records: Records) -> list[int]:
    """All seeds that were ever run."""
    return sorted({seed for _, seed in records.by_question})


def check_writable(**folders: Path) -> None:
    """Refuse folders that cannot be written into, before hours of work that would be lost."""
    for what, folder in folders.items():
        probe = folder / f".probe-{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ConfigError(f"--{what} {folder}: cannot be written into: {error.strerror or error}") from error


def _check(scale: str, device: str, jobs: int, minutes: float | None, note: str) -> None:
    for what, value, allowed in (("scale", scale, get_args(Scale)), ("device", device, ("auto", "cpu", "cuda"))):
        if value not in allowed:
            raise ConfigError(f"{what} {value!r} is unknown. Allowed: {', '.join(allowed)}.")
    if whole(jobs, "jobs") < 1:
        raise ConfigError(f"jobs: must be at least 1, not {jobs}")
    if minutes is not None and (isinstance(minutes, bool) or not isinstance(minutes, int | float) or not minutes > 0):
        raise ConfigError(f"minutes: must be a number above 0, not {minutes!r}")
    if note and not note.isprintable():
        raise ConfigError(f"note: must be one line of text, not {note!r}")


def _not_given(machine: Sequence[str], sets: Sequence[str]) -> list[str]:
    """The machine's settings that nobody has set otherwise."""
    given = {text.partition("=")[0].strip() for text in sets}
    return [text for text in machine if text.partition("=")[0] not in given]


def _timed(say: Say) -> Say:
    begin = time.monotonic()
    return lambda text: say(f"{time.monotonic() - begin:6.0f} s  {text}")
