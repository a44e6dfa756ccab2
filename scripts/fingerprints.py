"""Every method, three rounds, in every executor: digests of state, clients' memory and metrics.

`make fingerprints` compares with `scripts/fingerprints.json`; a move of code must leave them as they are. Bits belong
to a processor and a version of torch, so on other ones there is nothing to compare with: run it once before a change
with `--write`, and again after it.

    python scripts/fingerprints.py            compare, and say what differs
    python scripts/fingerprints.py --write    keep what was found
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file

import accord
from accord.core.methods import ALGORITHMS
from accord.executors import EXECUTORS
from accord.executors.gpu.batched import Batched

# Ray runs `sequential` or `batched` in its actors, and its own tests hold it to their bits.
DIGESTED = tuple(name for name in EXECUTORS if name != "ray")
HOME = Path(__file__).with_name("fingerprints.json")
COMMON = (
    "rounds=3",
    "data.limit=240",
    "partition.clients=5",
    "partition.alpha=0.5",
    "partition.validation=0.1",
    "clients.count=3",
    "local.batch_size=16",
    "local.momentum=0.5",
    "local.weight_decay=0.001",
    "model.name=mlp",
    "model.hidden=[12]",
    "evaluate.personal=true",
    "evaluate.drift=true",
)
OTHER_MODELS = {"fedfusion": "mcmahan_cnn", "fedbn": "fedbr_cnn"}
MEASURED = (
    *("round", "loss", "cohort", "bytes_up", "bytes_down", "start_bytes_up", "start_bytes_down", "server", "personal"),
    *("accuracy", "test_loss", "clients", "validation_accuracy", "drift"),
)


def machine() -> dict[str, str]:
    """What bits depend on."""
    model = next((line for line in _cpuinfo() if line.startswith("model name")), platform.processor())
    return {"processor": model.split(":")[-1].strip(), "torch": str(torch.__version__), "threads": "1"}


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.is_file() else []


@contextmanager
def batched_on_a_cpu() -> Iterator[None]:
    """The executor for GPUs is the same code on a CPU; users are told to take another one there."""
    usual = Batched.devices
    Batched.devices = (*usual, "cpu")
    try:
        yield
    finally:
        Batched.devices = usual


def fingerprint(method: str, executor: str, out: Path) -> dict[str, str]:
    """The digests of one run."""
    sets = [*COMMON, f"algorithm.name={method}", f"executor={executor}", f"out={out}", f"name={method}-{executor}"]
    if method in OTHER_MODELS:
        sets = [text for text in sets if not text.startswith("model.")]
        sets += [f"model.name={OTHER_MODELS[method]}", "data.limit=60"]
    outcome = accord.run(accord.load_config(sets=sets))
    newest = sorted((outcome.folder / "checkpoint").glob("round-*"))[-1]
    clients = json.loads((newest / "run.json").read_text())["clients"]
    memory = {k: _tensors(outcome.folder / "checkpoint" / "clients" / entry[0]) for k, entry in clients.items()}
    metrics = [{key: record[key] for key in MEASURED if key in record} for record in outcome.metrics]
    return {
        "state": _digest(_tensors(newest / "server.safetensors")),
        "memory": _digest(memory),
        "metrics": _digest(metrics),
    }


def _tensors(file: Path) -> list[Any]:
    found = load_file(file)
    return [
        [name, str(t.dtype), list(t.shape), hashlib.sha256(t.tobytes()).hexdigest()]
        for name, t in sorted(found.items())
    ]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def main() -> None:
    """Run all, compare or keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep what was found")
    parser.add_argument("--methods", default="", help="only these, separated by commas")
    args = parser.parse_args()
    methods = [name for name in args.methods.split(",") if name] or list(ALGORITHMS)
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder, batched_on_a_cpu():
        for method in methods:
            for executor in DIGESTED:
                found[f"{method}/{executor}"] = fingerprint(method, executor, Path(folder))
            print(method, found[f"{method}/sequential"]["state"], flush=True)
    if args.write:
        kept = json.loads(HOME.read_text())["digests"] if args.methods and HOME.exists() else {}
        HOME.write_text(
            json.dumps({"machine": machine(), "digests": {**kept, **found}}, indent=1, sort_keys=True) + "\n"
        )
        print(f"{len(found)} fingerprints written")
        return
    known = json.loads(HOME.read_text())
    if known["machine"] != machine():
        print(f"kept on {known['machine']}, this is {machine()}: bits cannot be compared")
        raise SystemExit(3)
    differ = [
        f"{name}: {part} differs"
        for name, parts in found.items()
        for part, digest in parts.items()
        if known["digests"].get(name, {}).get(part) != digest
    ]
    gone = sorted(set(known["digests"]) - set(found)) if not args.methods else []
    print("\n".join([*differ, *(f"{name}: not run" for name in gone)]) or f"all {len(found)} fingerprints are the same")
    sys.exit(1 if differ or gone else 0)


if __name__ == "__main__":
    main()
