"""Set a share of the samples aside as test data, the same share of every stratum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accord.data.federated import Index
from accord.errors import DataError


def holdout(
    strata: npt.NDArray[np.integer], fraction: float, rng: np.random.Generator, spread: Index | None = None
) -> tuple[Index, Index]:
    """Positions to keep and positions to set aside, both ascending.

    Of a stratum of n samples `fraction * n` are set aside, rounded, but at least one and never all; a single
    sample is kept. With `spread` (a label per sample) those set aside are also spread evenly over its values,
    as far as whole numbers allow: a systematic sample, at equal steps from a random start, of the samples
    sorted by it.
    """
    if not 0 < fraction < 1:
        raise DataError(f"the test fraction must lie between 0 and 1, got {fraction}")
    shuffled = rng.permutation(len(strata))
    keys = (strata[shuffled],) if spread is None else (spread[shuffled], strata[shuffled])
    order = shuffled[np.lexsort(keys)]  # by stratum, then by spread, then at random
    _, counts = np.unique(strata, return_counts=True)
    aside = np.zeros(len(strata), dtype=bool)
    start = 0
    for n in counts.tolist():
        taken = min(max(1, int(fraction * n + 0.5)), n - 1)
        if taken:
            steps = (np.arange(taken) + rng.random()) * (n / taken)
            aside[order[start + np.minimum(steps.astype(np.int64), n - 1)]] = True
        start += n
    if not aside.any():
        raise DataError("no stratum has two samples, so no test data can be set aside; give test data")
    return np.flatnonzero(~aside).astype(np.int64), np.flatnonzero(aside).astype(np.int64)
