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


def main(folder: Path, rounds: int = 30) -> dict[str, float]:
    """Mean error over the practices: of a model all made together, and of everyone's own."""
    folder.mkdir(parents=True, exist_ok=True)
    table(folder / "progression.csv")
    data = accord.from_table(folder / "progression.csv", label="progression", client="practice", task="regression")
    errors = {}
    # Chosen on validation data (evaluate.split=validation). Labels of a hundred make gradients of a hundred: clip them.
    for method in ("fedavg", "local"):
        outcome = accord.run(
            data=data,
            algorithm=method,
            rounds=rounds,
            lr=0.02,
            out=str(folder / "runs"),
            sets=["model.name=mlp", "model.hidden=[32]", "clients.count=8", "local.clip=50", "evaluate.r2=true"],
        )
        found = outcome.summary["client_rmse" if method == "fedavg" else "personal_rmse"]
        errors[method] = found["mean"]
        print(f"{method}: mean error of the practices {found['mean']:.1f}, at the worst one {found['worst']:.1f}")
    model = accord.load(folder / "runs" / "fedavg-progression-s0")
    patient = {
        "age": 59,
        "sex": 2,
        "bmi": 32.1,
        "bp": 101,
        "s1": 157,
        "s2": 93.2,
        "s3": 38,
        "s4": 4,
        "s5": 4.86,
        "s6": 87,
    }
    print(
        f"A patient's progression after a year, as the common model sees it: {float(model.predict([patient])[0]):.0f}"
    )
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/diabetes"))
    main(parser.parse_args().folder)
