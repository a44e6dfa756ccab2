"""Do the tests notice when the code is wrong? Each mutant is one small change that must make a test fail.

    python scripts/mutants.py                        the kept list, tests/mutants.toml
    python scripts/mutants.py --draw 6 --seed 3      six fresh ones per folder, drawn by the seed
    python scripts/mutants.py --only aggregate/      kept (or drawn) ones of files whose path holds this
    python scripts/mutants.py --list FILE            somebody's own: [[mutant]] with file, old, new; tests are found
    python scripts/mutants.py --reach FOLDER ...     ask first the tests that run a line (scripts/mutant_reach.py)

Every worker has a copy of the tree; the working tree is never changed. A mutant is tried with the tests nearest to it,
and the first that fails ends it. Kept ones name their tests. For drawn ones the tests are those known to run the
changed line, then those named after the file, then those that speak of its module or of what it defines, then those of
its folder, then the contracts. A test that fails counts where it passes without the mutant, and with it fails again,
alone and with more time; one that takes too long, and a tenth of that without the mutant, is not asked again, and is
said to hang. A mutant that outlives `--limit` seconds counts as alive. Seconds are those of a processor, so that it
does not matter how busy the machine is. Equivalent changes, and places where every change is one (the size of a block)
or needs a GPU, are listed in the same file with the reason, and not drawn.
"""

from __future__ import annotations

import argparse
import compileall
import multiprocessing
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mutant_draw import Change, changes, draw
from mutant_forks import SHORTLY, ask, prepare
from mutant_reach import Reach
from mutant_tests import SOURCE, Call, nearest, reaching
from mutant_warm import Asked, killers

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutants.toml"
TOP = "top"  # files beside the folders
FOLDERS = ("algorithms", "parts", "aggregate", "core", "engine", "data", "measures", "executors", "wire", "settings")
FOLDERS += ("problems", "models", "deploy", "study", TOP)
OPTIONS = ("-x", *SHORTLY)
TOO_LONG, LONGER = 20, 60  # seconds of a processor for a test, and for one that is asked again, alone
BY_THE_CLOCK = 5  # times as long where it waits, or others compute: a busy machine is not a mutant


@dataclass(frozen=True)
class Mutant:
    """A changed file, and the calls of pytest that are asked about it, one after the other."""

    file: str
    text: str
    line: int
    old: str
    new: str
    calls: tuple[Call, ...]

    @property
    def folder(self) -> str:
        """The room it lives in."""
        first, *rest = Path(self.file).relative_to(SOURCE).parts
        return first if rest else TOP


@dataclass(frozen=True)
class Verdict:
    """Whether a mutant lives, why, and how long it took to say so."""

    lives: bool
    why: str = ""
    seconds: float = 0.0
    broken: tuple[str, ...] = ()  # tests that fail without a mutant, found so far


def kept(listed: dict[str, Any], reach: Reach | None) -> list[Mutant]:
    """The mutants of a list; those that name no tests are asked like drawn ones."""
    made = []
    for entry in listed.get("mutant", []):
        text = (ROOT / entry["file"]).read_text()
        if text.count(entry["old"]) != 1:
            sys.exit(f"{entry['file']} holds {entry['old']!r} {text.count(entry['old'])} times, not once")
        line = text[: text.index(entry["old"])].count("\n") + 1
        calls = (Call(tuple(entry["tests"])),) if "tests" in entry else _found(entry["file"], text, line, reach)
        changed = text.replace(entry["old"], entry["new"])
        made.append(Mutant(entry["file"], changed, line, entry["old"], entry["new"], calls))
    return made


def drawn(listed: dict[str, Any], options: argparse.Namespace, reach: Reach | None) -> list[Mutant]:
    """Fresh mutants, so many per folder, without those listed as equivalent and the places passed over."""
    same = {(e["file"], e["old"], e.get("new")) for e in listed.get("equivalent", [])}  # no `new`: any change of a line
    passed_over = tuple(listed.get("passed_over", {}))
    made = list[Change]()
    for folder in FOLDERS:
        found = []
        files = (ROOT / SOURCE).glob("*.py") if folder == TOP else (ROOT / SOURCE / folder).rglob("*.py")
        for change in changes(ROOT, files):
            place = f"{change.file}:{change.where}"
            old, new = change.lines((ROOT / change.file).read_text())
            known = same & {(change.file, old, new), (change.file, old, None)}
            if not known and not place.startswith(passed_over) and options.only in change.file:
                found.append(change)
        made += draw(found, options.draw, f"{options.seed}.{folder}", apart=not options.every)
    return [_drawn(change, reach) for change in made]


def _drawn(change: Change, reach: Reach | None) -> Mutant:
    text = (ROOT / change.file).read_text()
    calls = _found(change.file, text, change.line, reach)
    return Mutant(change.file, change.apply(text), change.line, *change.lines(text), calls)


def _found(file: str, text: str, line: int, reach: Reach | None) -> tuple[Call, ...]:
    """Tests for a change of this line."""
    return (*(reaching(reach, file, text, line) if reach else ()), *nearest(file))


def copy_tree(target: Path) -> Path:
    """The files git knows or would take, with compiled files that are checked by content, not by time."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - whichever git there is
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(target / "src", quiet=1, invalidation_mode=mode)
    return target


def alive(mutant: Mutant, tree: Path, limit: float, sound: dict[str, bool], usual: dict[str, float]) -> Verdict:
    """Whether every test passed, and the test that did not. What fails without the mutant too counts for nothing.

    `usual` holds the seconds of tests that are known to pass.
    """
    place = tree / mutant.file
    before = place.read_text()
    passing = set[str]()  # with the mutant, when asked again
    end = _children_computed() + limit
    wall = ("-o", f"timeout={BY_THE_CLOCK * TOO_LONG}")
    try:
        for call in mutant.calls:
            while True:
                place.write_text(mutant.text)
                left_out = {*passing, *(test for test, fine in sound.items() if not fine)}
                asked, left = [*OPTIONS, *wall, *call.arguments], end - _children_computed()
                said = ask(asked, tree, left, call.chosen, left_out, most=TOO_LONG)
                if said is None:
                    return Verdict(True, "out of time")
                if said.code in {0, 5}:  # 5: nothing was collected
                    break
                if said.code == 4:  # not the mutant: pytest was called wrongly
                    raise SystemExit(said.text)
                if not said.failed:  # no test failed: the process did, which may be so without the mutant too
                    place.write_text(before)
                    again = ask(asked, tree, left, call.chosen, left_out, most=TOO_LONG)
                    if again is not None and again.code == 0:
                        return Verdict(False, f"exit {said.code}: {said.text.strip()[-200:]}")
                    break
                known = usual.get(said.failed, TOO_LONG) < TOO_LONG / 10
                if not (said.slow and known) and _passes(said.failed, tree):  # with the mutant, alone
                    passing.add(said.failed)
                    continue
                place.write_text(before)
                if not known and said.failed not in sound:
                    sound[said.failed] = _passes(said.failed, tree)
                if sound.get(said.failed, True):
                    return Verdict(False, said.failed + " (hangs)" * said.slow)
        return Verdict(True)
    finally:
        place.write_text(before)


def _passes(test: str, tree: Path) -> bool:
    """Whether a test passes alone, with more time, or a file of tests can be read."""
    file, _, name = test.partition("::")
    asked = [file] if name else [file, "--collect-only"]
    wall = ("-o", f"timeout={BY_THE_CLOCK * LONGER}")
    said = ask([*OPTIONS, *wall, *asked], tree, 2 * LONGER, (test,) if name else (), most=LONGER)
    return said is not None and said.code == 0


def _children_computed() -> float:
    """Seconds of a processor that calls have used."""
    times = os.times()
    return times.children_user + times.children_system


class _Worker:
    """A process with a copy of the tree, that tries one mutant after the other."""

    tree: Path
    sound: dict[str, bool]
    usual: dict[str, float]

    @classmethod
    def begin(cls, home: Path, usual: dict[str, float]) -> None:
        cls.tree, cls.sound, cls.usual = copy_tree(home / str(os.getpid())), {}, usual

    @classmethod
    def work(cls, mutant: Mutant, limit: float) -> Verdict:
        begun = time.monotonic()
        verdict = alive(mutant, cls.tree, limit, cls.sound, cls.usual)
        broken = tuple(test for test, fine in cls.sound.items() if not fine)
        return replace(verdict, seconds=time.monotonic() - begun, broken=broken)


def tried(
    mutants: list[Mutant], workers: int, limit: float, usual: dict[str, float]
) -> Iterator[tuple[Mutant, Verdict]]:
    """Each with its verdict: those first that one process can settle by what is known of the tests (`usual`)."""
    prepare()
    with tempfile.TemporaryDirectory(prefix="accord-mutants-") as home:
        left = list(mutants)
        if usual and sys.version_info >= (3, 11):  # where code knows its whole name
            asked = [Asked(m.file, m.text, [test for call in m.calls for test in call.chosen]) for m in mutants]
            begun = time.monotonic()
            for mutant, killer in zip(mutants, killers(asked, copy_tree(Path(home) / "warm"), usual), strict=True):
                if killer:
                    left.remove(mutant)
                    yield mutant, Verdict(False, killer, time.monotonic() - begun)
                begun = time.monotonic()
        forks = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(workers, forks, _Worker.begin, (Path(home), usual)) as pool:
            yield from zip(left, pool.map(_Worker.work, left, [limit] * len(left)), strict=True)


def main() -> int:
    """Try them, print a table, fail if one lives."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="draw N fresh mutants per folder")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--every", action="store_true", help="draw more than one of a function")
    parser.add_argument("--list", type=Path, default=LIST, metavar="FILE", help="instead of the kept list")
    parser.add_argument("--only", default="", help="files whose path holds this")
    parser.add_argument("--reach", type=Path, help="what scripts/mutant_reach.py has written")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds of a processor per mutant")
    parser.add_argument("--show", action="store_true", help="only say what would be tried")
    options = parser.parse_args()
    listed = tomllib.loads(options.list.read_text())
    reach = Reach(options.reach) if options.reach else None
    mutants = drawn(listed, options, reach) if options.draw else kept(listed, reach)
    mutants = [m for m in mutants if options.only in m.file]
    if options.show:
        for mutant in mutants:
            calls = " ; ".join(" ".join(call.chosen or call.arguments) for call in mutant.calls)
            print(f"{mutant.file}:{mutant.line}\n    - {mutant.old}\n    + {mutant.new}\n    {calls}")
        return 0
    table = defaultdict(lambda: [0, 0])
    broken = set[str]()
    for mutant, verdict in tried(mutants, options.workers, options.limit, reach.seconds if reach else {}):
        word = f"ALIVE  {verdict.why}" if verdict.lives else f"killed by {verdict.why}"
        print(f"{mutant.file}:{mutant.line}  {verdict.seconds:.1f} s  {word}", flush=True)
        if verdict.lives:
            print(f"    - {mutant.old}\n    + {mutant.new}", flush=True)
        for folder in (mutant.folder, "all"):
            table[folder][0] += not verdict.lives
            table[folder][1] += 1
        broken |= set(verdict.broken)
    for test in sorted(broken):
        print(f"fails without a mutant, and was left out: {test}")
    dead, count = table.pop("all", [0, 0])
    for folder, (killed, of) in [*table.items(), ("all", [dead, count])]:
        print(f"{folder:12} {killed:3} of {of:3} killed  {killed / max(of, 1):4.0%}")
    return 0 if dead == count else 1


if __name__ == "__main__":
    sys.exit(main())
