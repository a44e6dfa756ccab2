"""How far apart draws of one division are: FedBR's, ten clients and ten classes of one size (`lda`, alpha 0.1, prior).

    python benchmarks/lda_draws.py --draws 1000

The effective classes of a client are the exponential of the entropy of its class shares: 1 where it has one class.
`accord describe` prints their mean over the clients of a federation; this, how often such a federation is drawn.
"""

from __future__ import annotations

import argparse

import numpy as np

from accord.data.partitions.dirichlet import lda_client

CLASSES, SIZE = 10, 5000
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def effective_classes(seed: int, alpha: float) -> float:
    """The mean over clients, of one draw."""
    draws = np.random.default_rng(seed)
    left = np.full(CLASSES, SIZE)
    found = []
    for _ in range(CLASSES):
        counts = lda_client(left, SIZE, alpha, True, draws)
        left = left - counts
        shares = counts[counts > 0] / SIZE
        found.append(np.exp(-(shares * np.log(shares)).sum()))
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--alpha", type=float, default=0.1)
    given = parser.parse_args()
    means = [effective_classes(seed, given.alpha) for seed in range(given.draws)]
    print(f"effective classes per client, mean over ten clients, {given.draws} draws")
    for share, value in zip(QUANTILES, np.quantile(means, QUANTILES), strict=True):
        print(f"  {100 * share:4.0f} % of the draws are below {value:.3f}")


if __name__ == "__main__":
    main()
