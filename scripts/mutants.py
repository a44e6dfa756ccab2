"""Do the tests notice when the code is wrong? Each mutant is one small change that must make a test fail.

    python scripts/mutants.py                        the kept list, tests/mutants.toml
    python scripts/mutants.py --draw 6 --seed 3      six fresh ones per folder, drawn by the seed
    python scripts/mutants.py --only aggregate       kept (or drawn) ones of files whose path holds this

Every worker has a copy of the tree; the working tree is never changed. A mutant is tried with the tests nearest to it,
and the first that fails ends it. Kept ones name their tests. For drawn ones the tests are those named after the file,
then those that speak of its module or of what it defines, then those of its folder, then the contracts. A test that
takes too long counts as failed where it passes without the mutant, and with it takes too long again, alone and with
more time; it is said to hang. A mutant that outlives `--limit` seconds counts as alive. Equivalent changes, and places
where every change is one (the size of a block) or needs a GPU, are listed in the same file with the reason, and not
drawn.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import os
import py_compile
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutant_draw import Change, changes, draw

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "src/accord"
LIST = ROOT / "tests" / "mutants.toml"
FOLDERS = ("algorithms", "parts", "aggregate", "core", "engine", "data", "measures", "executors", "wire", "settings")
# What else speaks for a folder, after its own tests: these, then the matrix of all methods for the methods named.
FURTHER = {
    "parts": ("tests/algorithms",),
    "aggregate": ("tests/algorithms/test_robust_methods.py", "tests/algorithms/test_first_methods.py"),
    "core": (
        "tests/algorithms/test_first_methods.py",
        "tests/contracts/test_node.py",
        "tests/contracts/test_capture.py",
    ),
    "engine": ("tests/contracts/test_node.py", "tests/cli"),
    "executors": ("tests/contracts/test_capture.py",),
    "settings": ("tests/config", "tests/cli/test_cli_bad_configuration.py"),
}
QUICK = ("tests/algorithms/test_defaults.py", "tests/data/test_seeds.py")  # seconds, and about very many files
OPTIONS = ("-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow and not gpu")
OPTIONS += ("-o", "timeout=60", "--hypothesis-profile=mutants")
LONGER = ("-o", "timeout=150")  # for a test that took too long, asked again: a busy machine is not a mutant
MATRIX = "tests/contracts/test_matrix.py"
MATRIX_FOR = dict.fromkeys(("core", "executors", "parts", "engine"), "fedavg or scaffold or fedrep or fedbr")


@dataclass(frozen=True)
class Mutant:
    """A changed file, and the calls of pytest that are asked about it, one after the other."""

    file: str
    text: str
    line: int
    old: str
    new: str
    calls: tuple[tuple[str, ...], ...]

    @property
    def folder(self) -> str:
        """The room it lives in."""
        return Path(self.file).relative_to(SOURCE).parts[0]


def kept(listed: dict[str, Any]) -> list[Mutant]:
    """The mutants of the list."""
    made = []
    for entry in listed.get("mutant", []):
        text = (ROOT / entry["file"]).read_text()
        if text.count(entry["old"]) != 1:
            sys.exit(f"{LIST.name}: {entry['file']} holds {entry['old']!r} {text.count(entry['old'])} times, not once")
        line = text[: text.index(entry["old"])].count("\n") + 1
        changed = text.replace(entry["old"], entry["new"])
        made.append(Mutant(entry["file"], changed, line, entry["old"], entry["new"], (tuple(entry["tests"]),)))
    return made


def drawn(listed: dict[str, Any], count: int, seed: int, only: str) -> list[Mutant]:
    """Fresh mutants, `count` per folder, without those listed as equivalent and the places passed over."""
    same = {(e["file"], e["old"], e["new"]) for e in listed.get("equivalent", [])}
    passed_over = tuple(listed.get("passed_over", {}))
    made = []
    for folder in FOLDERS:
        found = []
        for change in changes(ROOT, ROOT / SOURCE / folder):
            place = f"{change.file}:{change.where}"
            known = (change.file, *change.lines((ROOT / change.file).read_text())) in same
            if not known and not place.startswith(passed_over) and only in change.file:
                found.append(change)
        made += [_drawn(change) for change in draw(found, count, f"{seed}.{folder}")]
    return made


def _drawn(change: Change) -> Mutant:
    text = (ROOT / change.file).read_text()
    return Mutant(change.file, change.apply(text), change.line, *change.lines(text), calls_for(change.file))


def calls_for(file: str) -> tuple[tuple[str, ...], ...]:
    """Tests by nearness."""
    path = Path(file)
    folder = path.relative_to(SOURCE).parts[0]
    whole = folder == "algorithms" and path.parent.name != folder  # a method in a folder is one method
    own = path.parent.name if whole or path.stem == "__init__" else path.stem
    sources = sorted((ROOT / path.parent).glob("*.py")) if whole else [ROOT / path]
    methods = [name for source in sources for name in _defined(source, decorated="method")]
    module = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
    names = {own, module, *methods, *_defined(ROOT / path)}
    scores: dict[str, float] = {}
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        place = str(test.relative_to(ROOT))
        if place == MATRIX or place.startswith(("tests/gpu/", "tests/hostile/")):
            continue
        text = test.read_text()
        words = Counter(re.findall(r"[\w.]+", text))
        score = sum(min(words[name], 3) for name in names) + 5 * words[module]
        score += 1000 * (own.strip("_") in test.stem or any(m in test.stem for m in methods))
        score += 100 * (place.startswith(f"tests/{folder}/") and folder != "algorithms")
        if score:
            scores[place] = score
    first = [place for place in QUICK if scores.get(place)]
    nearest = (first + sorted(scores.keys() - first, key=lambda place: (-scores[place], place)))[:25]
    more = [place for place in FURTHER.get(folder, ()) if place not in nearest]
    chosen = " or ".join(methods) or MATRIX_FOR.get(folder, "")
    near = (*nearest, *more)
    return (near, (MATRIX, "-k", chosen)) if chosen else (near,)


def _defined(source: Path, decorated: str = "") -> list[str]:
    """Names a module defines at its top; only functions with this decorator, if one is named."""
    return [
        node.name
        for node in ast.parse(source.read_text()).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and (not decorated or any(f".{decorated}" in ast.unparse(d) for d in node.decorator_list))
    ]


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


def alive(mutant: Mutant, tree: Path, limit: float, sound: dict[str, bool]) -> tuple[bool, str]:
    """Whether every test passed, and the test that did not. What fails without the mutant too counts for nothing."""
    place = tree / mutant.file
    end = time.monotonic() + limit
    slower = set[str]()  # passes with the mutant, given time
    slow = False
    try:
        for call in mutant.calls:
            failed = ""
            while not failed:
                place.write_text(mutant.text)
                broken = [f"--deselect={test}" for test in {*slower, *(t for t, fine in sound.items() if not fine)}]
                said = _output([*OPTIONS, *broken, *call], tree, end - time.monotonic())
                if said is None:
                    return True, "out of time"
                code, text = said
                if code in {0, 5}:  # 5: nothing was collected
                    break
                if code == 4:  # not the mutant: pytest was called wrongly
                    raise SystemExit(text)
                found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
                failed = found[1] if found else f"exit {code}: {text.strip()[-200:]}"
                slow = found is not None and "Timeout (>" in found[0]
                if slow and _passes(failed, tree, LONGER):  # with the mutant
                    slower.add(failed)
                    failed = ""
                    continue
                shutil.copyfile(ROOT / mutant.file, place)
                if found and failed not in sound:
                    sound[failed] = _passes(failed, tree, LONGER)
                failed = failed if sound.get(failed, True) else ""
            if failed:
                return False, f"{failed} (hangs)" if slow else failed
        return True, ""
    finally:
        shutil.copyfile(ROOT / mutant.file, place)


def _passes(test: str, tree: Path, options: tuple[str, ...]) -> bool:
    """Whether a test passes alone, or a file of tests can be read."""
    asked = [test] if "::" in test else [test, "--collect-only"]
    said = _output([*OPTIONS, *options, *asked], tree, 300)
    if said is not None and said[0] == 4 and "[" in test:  # a name the command line does not find again
        said = _output([*OPTIONS, *options, test.partition("[")[0]], tree, 300)
    return said is not None and said[0] == 0


def _output(arguments: list[str], tree: Path, seconds: float) -> tuple[int, str] | None:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{tree / 'src'}:{tree / 'tests'}"}
    process = subprocess.Popen(  # noqa: S603 - this Python, with paths of this tree
        [sys.executable, "-m", "pytest", *arguments],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return None
    return process.returncode, text


def tried(mutants: list[Mutant], workers: int, limit: float, say: Callable[[str], None]) -> list[Mutant]:
    """Those that live."""
    sound: dict[str, bool] = {}
    with tempfile.TemporaryDirectory(prefix="accord-mutants-") as home:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(workers):
            trees.put(copy_tree(Path(home) / str(number)))

        def one(mutant: Mutant) -> bool:
            tree = trees.get()
            begun = time.monotonic()
            try:
                lives, why = alive(mutant, tree, limit, sound)
            finally:
                trees.put(tree)
            verdict = f"ALIVE  {why}" if lives else f"killed by {why}"
            say(f"{mutant.file}:{mutant.line}  {time.monotonic() - begun:.0f} s  {verdict}")
            if lives:
                say(f"    - {mutant.old}\n    + {mutant.new}")
            return lives

        with ThreadPoolExecutor(workers) as pool:
            living = [m for m, lives in zip(mutants, pool.map(one, mutants), strict=True) if lives]
    for test in sorted(test for test, fine in sound.items() if not fine):
        say(f"fails without a mutant, and was left out: {test}")
    return living


def main() -> int:
    """Try them, print a table, fail if one lives."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="draw N fresh mutants per folder")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--only", default="", help="files whose path holds this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds per mutant")
    parser.add_argument("--show", action="store_true", help="only say what would be tried")
    options = parser.parse_args()
    listed = tomllib.loads(LIST.read_text())
    mutants = drawn(listed, options.draw, options.seed, options.only) if options.draw else kept(listed)
    mutants = [m for m in mutants if options.only in m.file]
    if options.show:
        for mutant in mutants:
            calls = " ; ".join(" ".join(call) for call in mutant.calls)
            print(f"{mutant.file}:{mutant.line}\n    - {mutant.old}\n    + {mutant.new}\n    {calls}")
        return 0
    living = tried(mutants, options.workers, options.limit, lambda line: print(line, flush=True))
    table = defaultdict(lambda: [0, 0])
    for mutant in mutants:
        table[mutant.folder][0] += mutant not in living
        table[mutant.folder][1] += 1
    for folder, (dead, count) in [*table.items(), ("all", [len(mutants) - len(living), len(mutants)])]:
        print(f"{folder:12} {dead:3} of {count:3} killed  {dead / max(count, 1):4.0%}")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
