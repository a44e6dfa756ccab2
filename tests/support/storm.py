"""Runs that are killed again and again, at random moments, and must end as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.zygote import Zygote

METHODS = (
    *("fedavg", "scaffold", "ditto", "feddyn", "moon", "fedper", "fedrep", "fedufo", "fedadam", "spherefed"),
    *("fedrane", "apple"),
)
EXECUTORS = ("sequential", "processes")
SETTINGS = {
    "rounds": 5,
    "data.limit": 200,
    "partition.clients": 6,
    "clients.count": 4,
    "model.name": "mlp",
    "model.hidden": [12],
    "local.epochs": 1,
    "evaluate.clients": "false",
    "evaluate.every": 2,
    "workers": 2,
    "checkpoint.keep": 2,
}
AFTER = 3.0  # seconds until no process may be left
HUNG = 120.0
STOPPED = {  # how a run may end that was sent a signal; 0: it was done before it noticed, or the signal was a worker's
    signal.SIGKILL: (0, -9),
    signal.SIGTERM: (0, 143, -15),
    signal.SIGINT: (0, 130, 1),  # 1: before the first line of the command ("Aborted!")
}


@dataclass
class Storm:
    """Kills runs below `place`; counts what it did, and what went wrong."""

    zygote: Zygote
    place: Path
    seed: int = 0
    settings: dict[str, object] = field(default_factory=lambda: dict(SETTINGS))

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.kills: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.journeys = 0
        self._whole: dict[str, tuple[dict[str, bytes], float]] = {}

    def blow(self, kills: int, methods: tuple[str, ...] = METHODS, executors: tuple[str, ...] = EXECUTORS) -> None:
        """Take methods and executors in turn until so many kills were made."""
        turns = [(method, executor) for method in methods for executor in executors]
        while self.kills.total() < kills:
            self.journey(*turns[self.journeys % len(turns)])

    def journey(self, method: str, executor: str) -> None:
        """One run, stopped and resumed until it is finished; then it is compared with an undisturbed one."""
        self.journeys += 1
        whole, seconds = self.undisturbed(method)
        folder = self.place / f"{method}-{executor}-{self.journeys}"
        log = folder.with_suffix(".log")
        before = len(self.wrong)
        for number in range(1, 100):
            calm = number > 12  # enough: let it finish
            if self._attempt(self.command(method, executor, folder), log, executor, 0.0 if calm else seconds) == 0:
                break
        if len(self.wrong) == before:
            self._compare(folder, whole)
        if len(self.wrong) == before:
            shutil.rmtree(folder)
            log.unlink()

    def undisturbed(self, method: str) -> tuple[dict[str, bytes], float]:
        """What a run leaves that nobody disturbs, and how long it takes."""
        if method not in self._whole:
            folder = self.place / f"{method}-undisturbed"
            began = time.monotonic()
            pid = self.zygote.start(*self.command(method, "sequential", folder), log=folder.with_suffix(".log"))
            code = self._wait(pid)
            assert code == 0, folder.with_suffix(".log").read_text()
            self._whole[method] = (contents(folder), time.monotonic() - began)
        return self._whole[method]

    def command(self, method: str, executor: str, folder: Path) -> list[object]:
        """To start it, or to go on with it."""
        if (folder / "config.toml").exists():
            return ["resume", folder, "-q"]
        if folder.exists():
            shutil.rmtree(folder)  # killed before it began
        sets = [text for key, value in self.settings.items() for text in ("--set", f"{key}={value}")]
        return [
            *("run", "-q", "-a", method, "--executor", executor, "--out", folder.parent, "--name", folder.name),
            *sets,
        ]

    def _attempt(self, command: list[object], log: Path, executor: str, seconds: float) -> int:
        """Start or resume it, kill what is drawn; the exit code."""
        pid = self.zygote.start(*command, log=log)
        sent: signal.Signals | None = None
        for whom, what in self._plan(executor) if seconds else ():
            code = self._wait(pid, self.rng.uniform(0, seconds))
            if code is not None:
                return self._ended(pid, code, sent, log)
            if self._send(pid, whom, what) and whom != "worker":
                sent = what
        return self._ended(pid, self._wait(pid), sent, log)

    def _plan(self, executor: str) -> Iterator[tuple[str, signal.Signals]]:
        """At most two kills of workers, as a client is given up after three; then the run itself."""
        anything = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
        if executor == "processes":
            for _ in range(self.rng.choice([0, 1, 1, 2])):
                yield "worker", self.rng.choice(anything[:2])
        if self.rng.random() < 0.8:
            yield self.rng.choice(["run", "group"]), self.rng.choice(anything)

    def _send(self, pid: int, whom: str, what: signal.Signals) -> bool:
        workers = [other for other in alive(pid) if other != pid]
        if whom == "worker" and not workers:
            return False
        with suppress(ProcessLookupError):
            if whom == "group":
                os.killpg(pid, what)
            else:
                os.kill(self.rng.choice(workers) if whom == "worker" else pid, what)
            self.kills[f"{whom} {what.name}"] += 1
            return True
        return False

    def _wait(self, pid: int, seconds: float | None = None) -> int | None:
        deadline = time.monotonic() + (HUNG if seconds is None else seconds)
        while (code := self.zygote.poll(pid)) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return code

    def _ended(self, pid: int, code: int | None, sent: signal.Signals | None, log: Path) -> int:
        """Look at how it ended, and whether it left anybody."""
        deadline = time.monotonic() + AFTER
        while (left := alive(pid)) and code is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        said = log.read_text(errors="replace")
        self._expect(code is not None, log, f"did not end in {HUNG:g} seconds after {sent}")
        self._expect(not left, log, f"left processes after {sent}: {left}")
        allowed = (0,) if sent is None else STOPPED[sent]
        self._expect(code in allowed, log, f"exit code {code} after {sent}, not one of {allowed}: {said[-2000:]}")
        self._expect("Traceback" not in said, log, f"a traceback after {sent}: {said[-2000:]}")
        if code == 143:
            self._expect("stopped: " in said, log, f"no hint how to go on: {said[-2000:]}")
        for other in left:
            os.kill(other, signal.SIGKILL)
        if code is not None:
            self.codes[code] += 1
        log.write_text("")
        return 0 if code is None or code not in allowed else code

    def _compare(self, folder: Path, whole: dict[str, bytes]) -> None:
        found = contents(folder)
        differ = sorted(name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name))
        self._expect(not differ, folder, f"differs from an undisturbed run in {differ}")
        self._expect(not (left := left_behind(folder)), folder, f"left files behind: {left}")

    def _expect(self, good: bool, where: Path, what: str) -> None:
        if not good:
            self.wrong.append(f"{where.name} (seed {self.seed}): {what}")


def contents(folder: Path) -> dict[str, bytes]:
    """All a run leaves that does not depend on the clock: numbers, state, clients' memories, model, summary."""
    last = max((folder / "checkpoint").glob("round-*"))
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"], summary["digest"]  # the second depends on the first
    found = {
        "metrics.jsonl": (folder / "metrics.jsonl").read_bytes(),
        f"{last.name}/server.safetensors": (last / "server.safetensors").read_bytes(),
        "summary.json": json.dumps(summary).encode(),
    }
    for path in sorted((folder / "model").rglob("*.*")):
        found[str(path.relative_to(folder))] = path.read_bytes()
    for client, entry in json.loads((last / "run.json").read_text())["clients"].items():
        found[f"client {client}"] = (folder / "checkpoint" / "clients" / entry[0]).read_bytes()
    return found


def left_behind(folder: Path) -> list[str]:
    """Temporary files, and memory of clients that no checkpoint knows."""
    checkpoint = folder / "checkpoint"
    records = [json.loads((kept / "run.json").read_text()) for kept in checkpoint.glob("round-*")]
    known = {entry[0] for record in records for entry in record["clients"].values()}
    clients = {path.name for path in (checkpoint / "clients").glob("*")}
    temporary = [path.name for path in folder.rglob(".*") if path.name.endswith(".tmp")]
    return sorted({*temporary, *(clients - known)})


def alive(session: int) -> list[int]:
    """The processes of a session, whoever their parents are now; the dead that nobody has buried do not count."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, _, _, number = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(number) == session and state not in "ZX":
                    found.append(int(entry.name))
    return found
