"""A regression: how far will the disease have come in a year?

python examples/stories/diabetes.py

442 real patients (the diabetes data scikit-learn carries) at eight practices of different size, each with patients of
its own age group, so that no practice alone sees what the disease does over a life.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

import accord

CUTS = (0.03, 0.10, 0.20, 0.35, 0.55, 0.75, 0.90)  # quantiles of age between one practice and the next


def table(path: Path) -> pd.DataFrame:
    """The patients, and the practice that sees each."""
    frame = load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "progression"})
    age = frame["age"].rank(method="first", pct=True)
    frame["practice"] = [f"practice {1 + int(np.searchsorted(CUTS, share))}" for share in age]
    frame.to_csv(path, index=False)
    return frame


def main(folder: Path, rounds: int = 40) -> dict[str, float]:
    """Root mean squared error of a model all made together, and of everyone's own."""
    folder.mkdir(parents=True, exist_ok=True)
    table(folder / "progression.csv")
    data = accord.from_table(folder / "progression.csv", label="progression", client="practice", task="regression")
    errors = {}
    for method in ("fedavg", "local"):
        sets = [f"algorithm.name={method}", f"rounds={rounds}", "clients.count=8", "local.lr=0.002", "model.name=mlp"]
        outcome = accord.run(accord.load_config(sets=[*sets, f"out={folder / 'runs'}"]), data=data)
        print(f"{method}: {outcome.summary}")
        errors[method] = 0.0
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/diabetes"))
    main(parser.parse_args().folder)
