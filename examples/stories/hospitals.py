"""From a CSV of eight hospitals to a model in use.

python examples/stories/hospitals.py

569 real patients (the Wisconsin breast cancer data scikit-learn carries) are dealt to eight hospitals of very different
size, most of the malignant cases to the few specialised ones; then everything is as it would be with a table of your
own: which method serves all of them, how well is each hospital served, and a model that reads raw rows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

import accord

HOSPITALS = ("Arles", "Brest", "Calais", "Dijon", "Lyon", "Metz", "Nice", "Reims")
SIZES = np.array([0.30, 0.20, 0.15, 0.12, 0.10, 0.06, 0.04, 0.03])  # share of the benign cases
SPECIAL = np.array([0.05, 0.30, 0.05, 0.30, 0.04, 0.20, 0.03, 0.03])  # share of the malignant ones
METHODS = ("fedavg", "scaffold", "ditto")

# Nothing of what trained the model is loaded here: a service that answers needs torch and the folder.
IN_USE = """
import csv, sys
import accord

model = accord.load(sys.argv[1])
with open(sys.argv[2], newline="") as file:
    rows = list(csv.DictReader(file))
print(*model.predict(rows), sep="\\n")
assert not any(name.startswith(("accord.engine", "accord.algorithms")) for name in sys.modules)
"""


def table(path: Path, seed: int = 0) -> pd.DataFrame:
    """The patients with the hospital that treats each, as a CSV."""
    bunch = load_breast_cancer(as_frame=True)
    frame = bunch.data.copy()
    frame["diagnosis"] = np.asarray(bunch.target_names)[bunch.target]
    rng = np.random.default_rng(seed)
    share = np.where((frame["diagnosis"] == "malignant").to_numpy()[:, None], SPECIAL, SIZES)
    frame["hospital"] = [HOSPITALS[rng.choice(8, p=p)] for p in share]
    frame.to_csv(path, index=False)
    return frame


def main(folder: Path, rounds: int = 20, seeds: tuple[int, ...] = (0, 1, 2)) -> list[str]:
    """The whole way; what the model in use said of five patients it never saw."""
    folder.mkdir(parents=True, exist_ok=True)
    patients = table(folder / "patients.csv")
    arriving = patients.groupby("diagnosis").sample(5, random_state=1)  # set aside: nobody trains on these
    patients.drop(arriving.index).to_csv(folder / "patients.csv", index=False)
    arriving.drop(columns=["diagnosis", "hospital"]).to_csv(folder / "arriving.csv", index=False)

    data = accord.from_table(folder / "patients.csv", label="diagnosis", client="hospital")
    sets = [f"rounds={rounds}", "clients.count=8", "local.epochs=2", "local.lr=0.05", "model.name=mlp"]
    sets += ["evaluate.auroc=true", f"out={folder / 'runs'}"]
    result = accord.compare(list(METHODS), seeds=seeds, config=accord.load_config(sets=sets), data=data)
    print(result.table())

    outcome = accord.run(accord.load_config(sets=[*sets, "algorithm.name=scaffold"]), data=data)
    for site in outcome.sites():
        print(site)
    command = [sys.executable, "-c", IN_USE, str(outcome.folder), str(folder / "arriving.csv")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    right = sum(a == b for a, b in zip(said, arriving["diagnosis"], strict=True))
    print(f"Of {len(said)} patients nobody trained on, {right} were diagnosed as the pathologist did.")
    return said


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/hospitals"))
    main(parser.parse_args().folder)
