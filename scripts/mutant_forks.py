"""Calls of pytest as forks of one process that has imported what takes long: torch, pytest and what tests use.

A fork imports Accord from its own tree, never from this process: nothing of the tree may be imported here.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = ("torch", "torch.func", "numpy", "numpy.testing", "safetensors.torch", "hypothesis.strategies", "pytest")
IMPORTED += ("asyncio", "multiprocessing.connection", "concurrent.futures", "xml.etree.ElementTree", "unittest.mock")
# pytest says of hypothesis that its asserts are not rewritten: nobody asks them.
QUIET = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
QUICK = "not slow and not gpu and not hostile and not federation"
SHORTLY = ("-q", "--tb=no", "-p", "no:cacheprovider", "-m", QUICK, "--hypothesis-profile=mutants")
TIMEOUT = "Timeout (>"  # how pytest-timeout says it, too
SLEEP = 5  # times as long as what may be computed may a call take by the clock: others compute too
TICKS = os.sysconf("SC_CLK_TCK")
IMPORTED += ("PIL.Image", "matplotlib.pyplot", "typer", "rich.console", "sklearn.metrics", "scipy.stats", "pandas")


@dataclass(frozen=True)
class Answer:
    """How a call of pytest ended."""

    code: int  # of the process; negative for a signal
    failed: str = ""  # the first test that failed, or the file that could not be read
    slow: bool = False  # because it took too long, by the processor's time or by the clock
    text: str = ""  # the end of what was printed


class _Watch:
    """Which tests are run, in which order, each for how long, and the first that fails."""

    def __init__(self, chosen: Sequence[str], left_out: Collection[str], most: float) -> None:
        self.place = {test: number for number, test in enumerate(chosen)}
        self.left_out, self.most = left_out, most
        self.failed, self.slow = "", False
        signal.signal(signal.SIGPROF, self._too_long)

    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, self.most)  # counts what it computes, however busy the machine is

    def pytest_runtest_logfinish(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _too_long(self, number: int, frame: Any) -> NoReturn:
        import pytest

        pytest.fail(f"{TIMEOUT}{self.most} s of a processor)")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.left_out]
        if self.place:
            known = [item for item in items if item.nodeid in self.place]
            items[:] = sorted(known, key=lambda item: self.place[item.nodeid])

    def _note(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed, self.slow = report.nodeid, TIMEOUT in str(report.longrepr)

    pytest_runtest_logreport = pytest_collectreport = _note


def prepare() -> None:
    """Import what takes long, once, in one thread."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    if "accord" in sys.modules:
        raise SystemExit("accord was imported before the forks: they would not see a mutant")
    gc.collect()
    gc.freeze()


def ask(
    arguments: Sequence[str],
    tree: Path,
    seconds: float,
    chosen: Sequence[str] = (),
    left_out: Collection[str] = (),
    *,
    most: float = 20,
) -> Answer | None:
    """Run pytest in a tree; None if that took more of a processor than `seconds`.

    Of `chosen` tests, if any are named, only those, each for `most` seconds of a processor.
    """
    with tempfile.TemporaryDirectory(prefix="accord-mutant-") as place:
        pid = os.fork()
        if pid == 0:
            _run(arguments, tree, Path(place), _Watch(chosen, left_out, most))
        seconds = max(seconds, 1)
        end = time.monotonic() + SLEEP * seconds
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
            while not ended and time.monotonic() < end and computed(pid) < seconds:
                time.sleep(0.01)
                ended, status = os.waitpid(pid, os.WNOHANG)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, 9)  # and whatever it left running
        if not ended:
            os.waitpid(pid, 0)
            return None
        said = Path(place) / "answer"
        found = json.loads(said.read_text()) if said.exists() else {}
        text = (Path(place) / "text").read_text(errors="replace")[-2000:]
        return Answer(os.waitstatus_to_exitcode(status), text=text, **found)


def computed(pid: int) -> float:
    """Seconds of a processor that a process has used, with its children that ended; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS


def _run(arguments: Sequence[str], tree: Path, place: Path, watch: _Watch) -> NoReturn:
    code = 70
    try:
        os.setsid()
        text = os.open(place / "text", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(text, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(tree)
        sys.path[:] = [str(tree / "src"), str(tree / "tests"), str(tree), *sys.path[1:]]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
        sys.argv = ["pytest", *arguments]
        sys.dont_write_bytecode = False  # pytest keeps the tests as it compiles them
        sys.modules["__main__"] = types.ModuleType("__main__")  # what a worker of a test would import again
        import pytest

        code = int(pytest.main([*QUIET, *arguments], plugins=[watch]))
        (place / "answer").write_text(json.dumps({"failed": watch.failed, "slow": watch.slow}))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
