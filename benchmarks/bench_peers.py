"""The same rounds on Flower's simulation, on pfl-research, on bare PyTorch loops and on Accord, in one run.

    python benchmarks/bench_peers.py [--setting mcmahan|pfl] [--device cpu|cuda] [--peers flower,pfl,bare,accord]

`mcmahan`: McMahan's CNN, 100 clients of 600 samples, 10 a round, batches of 10, one epoch. `pfl`: the setting of
pfl-research's published comparison (CIFAR-10 shapes, IID): 1000 clients of 50, 50 a round, lr 0.1, its two-layer CNN,
test data every 10 rounds. The samples are noise of the right shape; nothing is saved.

Every peer starts alone and runs its first round; then they take turns. Ratios are medians over turns of the
ratios within a turn. On the CPU every peer gets `--cores` cores and one thread per process: Flower that many Ray
actors, pfl that many ranks, Accord that many workers; the bare loops are that many processes side by side, each with
its part of the cohort, which is what a perfect division of the work would take. On the GPU it is one bare loop.

Flower and pfl live in environments of their own: `python benchmarks/peers/setup.py` makes them. Without them, or with
`--peer-python`, the peer runs on that Python with the PYTHONPATH it finds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / ".data" / "peers"
TITLES = {"bare": "bare PyTorch", "accord": "accord", "flower": "Flower simulation", "pfl": "pfl-research"}


class Process:
    """One peer process and what it has said so far."""

    def __init__(self, name: str, args: argparse.Namespace, share: int) -> None:
        own = ENVIRONMENTS / name / "bin" / "python"
        python = args.peer_python or (str(own) if own.exists() else sys.executable)
        env = os.environ | {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        if args.device == "cpu":
            env["CUDA_VISIBLE_DEVICES"] = ""
        paths = [str(HERE.parent / "src")] if name == "accord" else []
        env["PYTHONPATH"] = os.pathsep.join([*paths, str(HERE / "peers"), *filter(None, [env.get("PYTHONPATH")])])
        command = [python, str(HERE / "peers" / f"peer_{name}.py"), args.setting, "--device", args.device]
        command += ["--turns", str(args.turns), "--turn", str(args.turn), "--cores", str(args.cores)]
        command += ["--share", str(share), *([] if args.dropout else ["--no-dropout"])]
        self.name = name
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process runs
        self.begin = time.time()
        self.child = subprocess.Popen(
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log
        )
        self.versions = self.hear()

    def hear(self) -> dict[str, Any]:
        """The next JSON line; other lines are the peer's own talk."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        self.log.seek(0)
        raise SystemExit(f"{self.name} ended with exit code {self.child.wait()}:\n{self.log.read()[-4000:]}")

    def go(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write("go\n")
        self.child.stdin.flush()


class Peer:
    """The processes that together do one round's work."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        count = args.cores if name == "bare" and args.device == "cpu" else 1
        self.processes = [Process(name, args, count) for _ in range(count)]
        self.first = max(process.hear()["first"] - process.begin for process in self.processes)
        self.versions = self.processes[0].versions
        self.seconds: list[float] = []

    def turn(self) -> None:
        """Side by side; the mean of their times is what a perfect division would take."""
        for process in self.processes:
            process.go()
        self.seconds.append(statistics.mean(process.hear()["seconds"] for process in self.processes))

    def end(self) -> None:
        for process in self.processes:
            process.child.communicate()


def ratio(peer: Iterable[float], ours: Iterable[float]) -> float:
    return statistics.median(a / b for a, b in zip(peer, ours, strict=True))


def table(peers: dict[str, Peer], args: argparse.Namespace) -> dict[str, Any]:
    """Prints Markdown, returns the record."""
    record: dict[str, Any] = {"date": str(date.today()), "setting": args.setting, "device": args.device}
    record["load"] = os.getloadavg()  # a busy machine shows here
    record |= {"cores": args.cores, "rounds per turn": args.turn, "dropout": args.dropout, "peers": {}}
    ours = peers.get("accord")
    print(f"\n| {args.setting}, {args.device} | seconds per round | accord: rounds | first round | accord: sooner |")
    print("|---|---|---|---|---|")
    for name, peer in peers.items():
        median = statistics.median(peer.seconds)
        entry: dict[str, Any] = {"versions": peer.versions, "first": peer.first, "seconds": peer.seconds}
        cells = ["", ""]
        if ours is not None and name != "accord":
            entry["round ratio"] = ratio(peer.seconds, ours.seconds)
            entry["first ratio"] = peer.first / ours.first
            cells = [f"{entry['round ratio']:.2f} x", f"{entry['first ratio']:.1f} x"]
        packages = peer.versions["versions"]
        title = " ".join([TITLES[name], *(packages[key] for key in ("flwr", "pfl") if key in packages)])
        if len(peer.processes) > 1:
            title += f", {len(peer.processes)} ideal loops"
        print(f"| {title} | {median:.3f} | {cells[0]} | {peer.first:.1f} s | {cells[1]} |")
        record["peers"][name] = entry | {"median": median}
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", choices=["mcmahan", "pfl"], default="mcmahan")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--peers", default="bare,accord,flower,pfl", help="which of them, in this order")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--turn", type=int, default=0, help="rounds in a turn; 0: 1 on the CPU, 10 on the GPU")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--no-dropout", dest="dropout", action="store_false", help="the pfl network without dropout")
    parser.add_argument("--peer-python", default="", help="one Python for all peers")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "bench_peers.json")
    args = parser.parse_args()
    args.turn = args.turn or (10 if args.device == "cuda" else 1)
    names = args.peers.split(",")
    if unknown := set(names) - set(TITLES):
        parser.error(f"unknown peers {', '.join(sorted(unknown))}; known: {', '.join(TITLES)}")
    peers: dict[str, Peer] = {}
    for name in names:
        peers[name] = Peer(name, args)
        print(f"{name}: first round ended after {peers[name].first:.1f} s", file=sys.stderr)
    for number in range(args.turns):
        for peer in peers.values():
            peer.turn()
        seconds = ", ".join(f"{name} {peer.seconds[-1]:.3f}" for name, peer in peers.items())
        print(f"turn {number + 1}: seconds per round: {seconds}", file=sys.stderr)
    for peer in peers.values():
        peer.end()
    known = json.loads(args.json.read_text()) if args.json.exists() else {}
    known[f"{args.setting}-{args.device}"] = table(peers, args)
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
