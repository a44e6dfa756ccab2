"""Environments for the peers of `bench_peers.py`, below `.data/peers` (not in git).

    python benchmarks/peers/setup.py            an environment each for Flower and pfl-research
    python benchmarks/peers/setup.py --folder   pfl's own files in .data/pfl, for where nothing can be installed

With the folder: PYTHONPATH=src:.data/pfl python benchmarks/bench_peers.py --setting pfl --device cuda --peers
pfl,accord,bare. Torch is installed first and by its exact version: a range would pull the GPU build with
gigabytes of libraries.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl==0.6.0"}


def pinned(*names: str) -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.split("==")[0] in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", action="store_true", help="pfl's own files alone, without an environment")
    if parser.parse_args().folder:
        target = ROOT / ".data" / "pfl"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(target)]
        subprocess.run([*pip, PACKAGES["pfl"]], check=True)
        return
    pins = pinned("torch", "numpy")
    constraints = ROOT / ".data" / "peers" / "constraints.txt"
    constraints.parent.mkdir(parents=True, exist_ok=True)
    constraints.write_text("\n".join(pins) + "\n")
    for name, package in PACKAGES.items():
        folder = constraints.parent / name
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *pins], check=True)
        subprocess.run([*pip, "-c", str(constraints), package], check=True)
    (constraints.parent / ".ready").touch()


if __name__ == "__main__":
    main()
