"""Which tests run which line, by coverage: a change can only be noticed by a test that runs it.

    python scripts/mutant_reach.py FOLDER        run the tests once and note it there (about twelve minutes, one core)

`scripts/mutants.py --reach FOLDER` then asks exactly those tests. What runs in another process (workers, commands) is
not seen, and what runs on import counts for every test of the file; the nearest tests are asked after the others.
Sources and tests are kept beside it: lines that have only moved since are still known, and so is what is new.
"""

from __future__ import annotations

import ast
import difflib
import functools
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PASSED_BY = {"gpu", "hostile", "support", "__pycache__"}


class Reach:
    """What a folder written by `python scripts/mutant_reach.py` knows."""

    def __init__(self, folder: Path) -> None:
        from coverage import CoverageData

        self.folder = folder
        self.seconds: dict[str, float] = {}  # of the tests that passed
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        beside: dict[str, set[str]] = defaultdict(set)  # by file
        for noted in sorted(folder.glob("*.json")):
            self.seconds |= json.loads(noted.read_text())
            for test in self.seconds:
                beside[test.partition("::")[0]].add(test)
            data = CoverageData(str(noted.with_suffix(".cov")))
            data.read()
            for path in data.measured_files():
                file = path[path.index("src/accord") :]
                for line, contexts in data.contexts_by_lineno(path).items():
                    for test, _, phase in (context.rpartition("|") for context in contexts if context):
                        # what a fixture ran may be looked at by all tests that follow
                        self._lines[file][line] |= beside[test.partition("::")[0]] if phase == "setup" else {test}

    def knows(self, place: str) -> bool:
        """Whether a file is as it was."""
        before, now = self.folder / place, ROOT / place
        return before.is_file() and before.read_bytes() == now.read_bytes()

    def tests(self, file: str, text: str, line: int) -> list[str]:
        """Tests that run the statement of this line, the quickest first."""
        first, last = extent(ast.parse(text), line)
        before = self.folder / file
        moved = _moves(before.read_text(), text) if before.exists() else {}
        lines = ((moved.get(number, 0), tests) for number, tests in self._lines.get(file, {}).items())
        found = set[str]().union(*(tests for number, tests in lines if first <= number <= last))
        return sorted(found & self.seconds.keys(), key=lambda test: (self.seconds[test], test))


@functools.lru_cache(maxsize=4)
def _moves(before: str, after: str) -> dict[int, int]:
    """Where the lines are now that were there before, counted from 1."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return {a + i + 1: b + i + 1 for a, b, size in matcher.get_matching_blocks() for i in range(size)}


def extent(module: ast.Module, line: int) -> tuple[int, int]:
    """Lines whose running runs this one: its statement, or its function (a default), or all (outside of functions)."""
    first, last, inside = 1, 10**9, False
    body: list[ast.stmt] = module.body
    while around := [node for node in body if _begin(node) <= line <= (node.end_lineno or 0)]:
        node = around[0]
        blocks = _blocks(node)
        head_ends = min((block[0].lineno for block in blocks), default=10**9) - 1
        function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if function:
            first, last, inside = node.body[0].lineno, node.end_lineno or 0, True
        if line <= head_ends and not (function or isinstance(node, ast.ClassDef)) and inside:
            return node.lineno, min(head_ends, node.end_lineno or 0)
        body = [inner for block in blocks for inner in block]
    return first, last


def _begin(node: ast.stmt) -> int:
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """The statements inside a statement."""
    blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [part.body for part in (*getattr(node, "handlers", []), *getattr(node, "cases", []))]
    return [block for block in blocks if block]


class _Times:
    """A plugin of pytest: the seconds of each test that passed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.bad = set[str]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        if not report.passed:
            self.bad.add(report.nodeid)


def note(target: Path, tests: list[str]) -> None:
    """Run some tests in this process and write what they ran."""
    import pytest

    times = _Times()
    options = ["-q", "-p", "no:cacheprovider", "--cov=src/accord", "--cov-context=test", "--cov-report="]
    pytest.main([*options, "-m", "not slow and not gpu and not hostile and not federation", *tests], plugins=[times])
    target.write_text(json.dumps({test: s for test, s in times.seconds.items() if test not in times.bad}))


def main() -> None:
    """One process per folder of tests, one after the other."""
    folder = Path(sys.argv[1]).resolve()
    if len(sys.argv) > 2:
        note(folder, sys.argv[2:])
        return
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    rooms = sorted(p for p in (ROOT / "tests").iterdir() if p.is_dir() and p.name not in PASSED_BY)
    parts = {room.name: [str(room.relative_to(ROOT))] for room in rooms}
    parts["top"] = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").glob("test_*.py"))]
    for name, tests in parts.items():
        environment = os.environ | {"COVERAGE_FILE": str(folder / f"{name}.cov"), "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
        command = [sys.executable, __file__, str(folder / f"{name}.json"), *tests]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)  # noqa: S603 - this Python, this file


if __name__ == "__main__":
    main()
