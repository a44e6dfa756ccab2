"""Rows of a plan, several at a time on one GPU, and thin records of what they gave.

    python benchmarks/gpu_rows.py run PLAN.toml --runs DIR --jobs 12 --minutes 25 [--mps] [--only ID,ID]
    python benchmarks/gpu_rows.py collect PLAN.toml --runs DIR --out results

A plan lists experiments; each has an `id`, the settings (`sets`) all of its rows share, and its rows: a `name` and
what is different. `run` takes the rows in the order of their `turn` (0 unless given) and of the file, as many at once
as `jobs` says, each in a process of its own; it reads the plan again before every start, so rows may be added,
reordered or marked `skip = true` meanwhile. When the minutes are over, or when it is told to end, what is running is
stopped, and the same command goes on from the last checkpoints. `collect` writes a JSON file per row, finished or not:
evaluations, settings, versions, hardware, seconds, why it broke off if it did, and its share of the device: the time
on the clock, divided at every moment by the rows at work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
KEPT = ("round", "accuracy", "test_loss", "loss", "clients", "server")
SPREAD = ("best", "worst", "mean", "std")
TURNS = "turns.jsonl"  # in the folder of the runs: who was at work when
GRACE = 15  # seconds a row has to end after it is told to


@dataclass(frozen=True)
class Row:
    """One run."""

    experiment: str
    name: str
    sets: tuple[str, ...]
    skip: bool = False

    def folder(self, runs: Path) -> Path:
        return runs / self.experiment / self.name


def rows_of(plan: Path) -> list[Row]:
    """All rows, in the order of their turns."""
    found = tomllib.loads(plan.read_text(encoding="utf-8"))
    common = found.get("sets", [])
    rows = [
        (
            row.get("turn", 0),
            Row(one["id"], row["name"], (*common, *one.get("sets", []), *row.get("sets", [])), row.get("skip", False)),
        )
        for one in found["experiment"]
        for row in one["row"]
    ]
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def carry_out(row: Row, runs: Path) -> None:
    """This process is the row's own: start it, or go on with it."""
    from accord.config import load_config
    from accord.engine.run import resume, run

    folder = row.folder(runs)
    if (folder / "config.toml").is_file():
        resume(folder)
    else:
        run(load_config(None, [*row.sets, f"out={folder.parent}", f"name={folder.name}"]))


def end_when_told() -> None:
    """A request to terminate is taken as Ctrl-C is: with everything that is written at the end."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


class Desk:
    """Which rows are running, and which had their turn."""

    def __init__(self, plan: Path, runs: Path, jobs: int, only: set[str]) -> None:
        self.plan, self.runs, self.jobs, self.only = plan, runs, jobs, only
        self.at_work: dict[Row, subprocess.Popen[bytes]] = {}
        self.started: set[tuple[str, str]] = set()
        self.begin = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.begin:6.0f} s  {text}", flush=True)

    def waiting(self) -> list[Row]:
        """Rows whose turn has not come: neither finished earlier nor started now."""
        return [
            row
            for row in rows_of(self.plan)
            if (not self.only or row.experiment in self.only)
            and not row.skip
            and (row.experiment, row.name) not in self.started
            and not (row.folder(self.runs) / "summary.json").is_file()
        ]

    def note(self, row: Row, began: bool) -> None:
        """When a row was at work, for its share of the device; several desks may write at once."""
        line = {"at": time.time(), "row": f"{row.experiment}/{row.name}", "began": began}
        with (self.runs / TURNS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def start(self, row: Row) -> None:
        log = row.folder(self.runs).parent / f"{row.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, "one", str(self.plan), "--runs", str(self.runs)]
        paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        with log.open("ab") as file:
            self.at_work[row] = subprocess.Popen(
                [*command, "--row", f"{row.experiment}/{row.name}"],
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
            )
        self.started.add((row.experiment, row.name))
        self.note(row, began=True)
        self.say(f"started  {row.experiment}/{row.name}")

    def look(self) -> None:
        """Take note of those that have ended, and of those the plan now wants skipped."""
        skipped = {(row.experiment, row.name) for row in rows_of(self.plan) if row.skip}
        for row, process in list(self.at_work.items()):
            if (row.experiment, row.name) in skipped and process.poll() is None:
                process.terminate()
            if process.poll() is not None:
                del self.at_work[row]
                self.note(row, began=False)
                self.say(f"ended ({process.returncode})  {row.experiment}/{row.name}")

    def stop(self) -> None:
        """Tell everyone, wait a little, then insist."""
        for process in self.at_work.values():
            process.terminate()
        until = time.monotonic() + GRACE
        for row, process in self.at_work.items():
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.note(row, began=False)
            self.say(f"stopped  {row.experiment}/{row.name}")
        self.at_work.clear()

    def work(self, minutes: float) -> None:
        """Until nothing is left, or the time is over."""
        end = self.begin + 60 * minutes
        try:
            while time.monotonic() < end:
                self.look()
                waiting = self.waiting()
                if not waiting and not self.at_work:
                    break
                for row in waiting[: max(self.jobs - len(self.at_work), 0)]:
                    self.start(row)
                time.sleep(1)
        finally:
            self.stop()


def shares(runs: Path) -> dict[str, float]:
    """Seconds of the device by row: the time between two events belongs in equal parts to those at work."""
    found: dict[str, float] = {}
    at_work: set[str] = set()
    before = 0.0
    for line in sorted(_lines(runs / TURNS), key=lambda line: line["at"]):
        for row in at_work:
            found[row] = found.get(row, 0.0) + (line["at"] - before) / len(at_work)
        before = line["at"]
        (at_work.add if line["began"] else at_work.discard)(line["row"])
    return found


def broke_off(folder: Path) -> str:
    """The last words of a row that ended with an error of ours; empty if it did not."""
    log = folder.with_name(f"{folder.name}.log")
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    name, _, words = lines[-1].partition("Error: ") if lines else ("", "", "")
    return words if name.startswith("accord.errors.") else ""


def record(row: Row, folder: Path, hardware: dict[str, str], share: float = 0.0) -> dict[str, Any] | None:
    """What is worth keeping of a run, or nothing if it has not come to an evaluation."""
    lines = _lines(folder / "metrics.jsonl")
    evaluations = [line for line in lines if "accuracy" in line or "personal" in line]
    if not evaluations:
        return None
    from accord.config import load_config
    from accord.engine.logs import versions

    config = load_config(folder / "config.toml")
    seconds = sum(v for line in _lines(folder / "timings.jsonl") for k, v in line.items() if k != "round")
    return {
        "experiment": row.experiment,
        "row": row.name,
        "algorithm": config.algorithm.name,
        "seed": config.seed,
        "settings": [one for one in row.sets if not one.startswith(("data.dir=", "checkpoint.", "out="))],
        "rounds": config.rounds,
        "rounds_done": lines[-1]["round"],
        "finished": (folder / "summary.json").is_file(),
        "broke_off": broke_off(folder),
        "seconds": round(seconds, 1),
        "gpu_seconds": round(share, 1),
        "versions": versions(),
        "hardware": hardware,
        "evaluations": [_thin(line) for line in evaluations],
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines; the last one may still be on its way."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def _thin(line: dict[str, Any]) -> dict[str, Any]:
    kept = {name: line[name] for name in KEPT if name in line}
    if "clients" in kept:
        kept["clients"] = {name: kept["clients"][name] for name in SPREAD}
    if "personal" in line:
        kept["personal"] = {name: line["personal"][name] for name in SPREAD if name in line["personal"]}
    return _rounded(kept)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return round(value, 5) if isinstance(value, float) else value


def hardware() -> dict[str, str]:
    """The device and how many runs may share it."""
    import torch

    found = {"cores": str(os.cpu_count())}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def collect(plan: Path, runs: Path, out: Path, note: str) -> None:
    """All records anew."""
    machine = {**hardware(), **({"note": note} if note else {})}
    times = shares(runs)
    for row in rows_of(plan):
        found = record(row, row.folder(runs), machine, times.get(f"{row.experiment}/{row.name}", 0.0))
        if found is None:
            continue
        path = out / row.experiment / f"{row.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
        last = found["evaluations"][-1]
        shown = f"accuracy {last['accuracy']:.4f}" if "accuracy" in last else ""
        state = "" if found["finished"] else " (goes on)"
        print(f"{row.experiment}/{row.name}: round {last['round']} of {found['rounds']}{state}, {shown}")


def start_sharing() -> str:
    """MPS lets the runs' kernels share the device instead of taking turns; without it they still run."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        return "no MPS here"
    done = subprocess.run(["nvidia-cuda-mps-control", "-d"], capture_output=True, text=True)
    return "MPS started" if done.returncode == 0 else f"no MPS: {(done.stdout + done.stderr).strip()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "one", "collect"])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--row")
    parser.add_argument("--note", default="", help="a remark on the hardware, e.g. how many runs shared it")
    given = parser.parse_args()
    end_when_told()
    if given.command == "one":
        (row,) = [row for row in rows_of(given.plan) if f"{row.experiment}/{row.name}" == given.row]
        carry_out(row, given.runs)
    elif given.command == "collect":
        collect(given.plan, given.runs, given.out, given.note)
    else:
        desk = Desk(given.plan, given.runs, given.jobs, set(filter(None, given.only.split(","))))
        if given.mps:
            desk.say(start_sharing())
        desk.work(given.minutes)


if __name__ == "__main__":
    main()
