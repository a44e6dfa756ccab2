"""Mutants as forks of one process that has collected all tests, so that nothing is imported anew for each.

Most changes lie in functions. A fork puts the changed code in the place of the old one, in memory, and runs the tests
that are known to run the line. The file is changed too, for what is imported later or in processes of its own. What
cannot be changed so (constants, defaults, bodies of classes), and what no test has noticed here, is asked again as the
ordinary way (`mutant_forks`): this one only ever says that a mutant was killed, and by which test.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from mutant_forks import QUIET, SHORTLY, computed

OPTIMIZED = 1  # the flag of a function's code; modules and classes do not have it
MOST, PATIENCE = 15.0, 60.0  # seconds of a processor, and by the clock, that a test may take beyond its usual ones
SLOWER, BUSIER = 6, 15  # times as long as usual
TOGETHER = 40.0  # usual seconds of the tests that are asked of one mutant; what is left is asked in the ordinary way
HANGS = " (hangs)"


class Asked(NamedTuple):
    """A changed file and the tests that run the line, those to be asked first first."""

    file: str
    text: str
    tests: Sequence[str]


Codes = dict[tuple[str, int], types.CodeType]  # by qualified name, and which of that name


def codes(code: types.CodeType) -> Codes:
    """All code of a module."""
    found: Codes = {}
    count: dict[str, int] = defaultdict(int)
    waiting = [code]
    while waiting:
        one = waiting.pop(0)
        found[one.co_qualname, count[one.co_qualname]] = one
        count[one.co_qualname] += 1
        waiting += [const for const in one.co_consts if isinstance(const, types.CodeType)]
    return found


def _alike(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether they do the same, wherever they stand, but for what is defined in them."""

    def told(code: types.CodeType) -> tuple[Any, ...]:
        consts = [(type(c), None if isinstance(c, types.CodeType) else repr(c)) for c in code.co_consts]
        return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars

    return told(one) == told(other)


def put(functions: Sequence[types.FunctionType], file: str, before: str, after: str) -> bool:
    """Give loaded functions the changed code; False where that is not enough."""
    old, new = codes(compile(before, file, "exec")), codes(compile(after, file, "exec"))
    differing = [key for key in old.keys() & new.keys() if not _alike(old[key], new[key])]
    if not differing or any(not new[key].co_flags & OPTIMIZED for key in differing):
        return False
    places = {(code.co_qualname, code.co_firstlineno): key for key, code in old.items()}
    for function in functions:
        code = function.__code__
        key = places.get((code.co_qualname, code.co_firstlineno))
        if key in new and key is not None:
            try:
                function.__code__ = new[key]
            except ValueError:  # it needs other variables of the function around it
                return False
    return True


class Collected:
    """A plugin of pytest: in the place of running the tests, `work` is done."""

    def __init__(self, tree: Path, usual: Mapping[str, float], work: Callable[[Collected], None]) -> None:
        self.tree, self.usual, self.work = tree, usual, work
        self.items: dict[str, Any] = {}
        self.functions: dict[str, list[types.FunctionType]] = defaultdict(list)

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType:
                self.functions[thing.__code__.co_filename].append(thing)
        gc.collect()
        gc.freeze()  # forks share what they do not touch
        self.work(self)
        return True

    def killer(self, asked: Asked) -> str:
        """The test that fails, and fails again alone; nothing where there is none."""
        place = self.tree / asked.file
        before = place.read_text()
        known, spent = list[str](), 0.0
        for test in asked.tests:
            if test in self.items and spent + self.usual.get(test, TOGETHER) < TOGETHER:
                known.append(test)
                spent += self.usual[test]
        place.write_text(asked.text)
        try:
            failed = self._first(known, str(place), before, asked.text) if known else ""
            again = [failed.removesuffix(HANGS)] if failed else []
            return failed if again and self._first(again, str(place), before, asked.text) else ""
        finally:
            place.write_text(before)

    def _first(self, tests: Sequence[str], file: str, before: str, after: str) -> str:
        """The first of the tests that fails in a fork."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._run(tests, writing, self.functions[file], (file, before, after))
        os.close(writing)
        os.set_blocking(reading, False)
        try:
            return self._watched(pid, reading)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, 9)
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(reading)

    def _watched(self, pid: int, reading: int) -> str:
        """Lines say which test begins, and which has failed; the end says that there are no more."""
        said, current, begun, used = b"", "", time.monotonic(), 0.0
        while True:
            try:
                piece = os.read(reading, 1 << 16)
            except BlockingIOError:
                usual = self.usual.get(current, 1.0)
                slow = computed(pid) - used > MOST + SLOWER * usual
                if slow or time.monotonic() - begun > PATIENCE + BUSIER * usual:
                    return current + HANGS
                time.sleep(0.005)
                continue
            said += piece
            word, _, test = said.decode(errors="replace").rstrip("\n").rpartition("\n")[2].partition(" ")
            if word == "failed":
                return test
            if not piece or word == "none":
                return ""  # what died without a word is asked again in the ordinary way
            if test != current:
                current, begun, used = test, time.monotonic(), computed(pid)

    def _run(
        self, tests: Sequence[str], writing: int, functions: Sequence[types.FunctionType], change: tuple[str, str, str]
    ) -> NoReturn:
        failed: list[str] = []

        class Watch:
            def pytest_runtest_logreport(self, report: Any) -> None:
                failed.extend([report.nodeid] * report.failed)

        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            items = [self.items[test] for test in tests] if put(functions, *change) else []
            for item, following in zip(items, [*items[1:], None], strict=False):
                os.write(writing, f"begins {item.nodeid}\n".encode())
                item.config.pluginmanager.unregister(name="watch")
                item.config.pluginmanager.register(Watch(), "watch")
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if failed:
                    os.write(writing, f"failed {item.nodeid}\n".encode())
                    os._exit(0)
            os.write(writing, b"none \n")
        finally:
            os._exit(0)


def killers(asked: Sequence[Asked], tree: Path, usual: Mapping[str, float]) -> Iterator[str]:
    """For each the test that kills it, or nothing. Runs in a process of its own, as it imports Accord from the tree."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _collect(asked, tree, usual, writing)
    os.close(writing)
    count = 0
    with open(reading) as lines:
        for line in lines:
            count += 1
            yield json.loads(line)
    os.waitpid(pid, 0)
    yield from [""] * (len(asked) - count)  # where it died, all are asked in the ordinary way


def _collect(asked: Sequence[Asked], tree: Path, usual: Mapping[str, float], writing: int) -> NoReturn:
    def work(collected: Collected) -> None:
        for one in asked:
            os.write(writing, (json.dumps(collected.killer(one)) + "\n").encode())

    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        os.chdir(tree)
        sys.path[:] = [str(tree / "src"), str(tree / "tests"), str(tree), *sys.path[1:]]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
        sys.modules["__main__"] = types.ModuleType("__main__")
        import pytest

        pytest.main([*QUIET, *SHORTLY, "-o", "timeout=0", "tests"], plugins=[Collected(tree, usual, work)])
    finally:
        os._exit(0)
