"""Commands of `accord` as forks of one process that has imported everything: torch's import outlasts a tiny run.

Each fork is a process like any other, in a session of its own: it is killed as a real one is.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

SRC, TESTS = Path(__file__).parents[2] / "src", Path(__file__).parents[1]


class Zygote:
    """The process the commands are forks of."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(SRC), str(TESTS), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        self._ask({})

    def start(self, *arguments: object, log: Path, largest_file: int = 0) -> int:
        """The process id of `accord arguments`; `largest_file` is the number of bytes a file of it may have."""
        return int(self._ask({"argv": [str(a) for a in arguments], "log": str(log), "largest_file": largest_file}))

    def poll(self, pid: int) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        code: int | None = self._ask({"poll": pid})
        return code

    def close(self) -> None:
        """End it; commands that still run go on."""
        self._process.communicate()

    def _ask(self, order: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def main() -> None:
    with suppress(ImportError):
        import pydantic  # noqa: F401  # typer looks for it when it reads the arguments

    import accord.engine.run
    import accord.report  # noqa: F401
    from accord.cli.app import app  # noqa: F401
    from accord.core.methods import ALGORITHMS
    from accord.executors.registry import EXECUTORS

    len(ALGORITHMS), len(EXECUTORS)  # imported when they are first looked into
    sys.modules["matplotlib"] = None  # type: ignore[assignment]  # pictures take longer than the run
    gc.freeze()  # so that the forks' collectors leave shared pages alone
    for line in sys.stdin:
        order = json.loads(line)
        answer: int | None = 0
        if "poll" in order:
            done, status = os.waitpid(order["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if done else None
        elif "argv" in order:
            answer = os.fork()
            if answer == 0:
                carry_out(order)
        print(json.dumps(answer), flush=True)


def carry_out(order: dict[str, Any]) -> NoReturn:
    from accord.cli import main as accord

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would have it ignored
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for ours, theirs in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(ours, theirs)
    if order["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"], resource.RLIM_INFINITY))
    sys.argv = ["accord", *order["argv"]]
    code = 1
    try:
        accord()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except KeyboardInterrupt:  # before the first line of the command, or after its last
        code = 130
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # taking the interpreter down piece by piece takes longer than the run


if __name__ == "__main__":
    main()
