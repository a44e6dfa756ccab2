"""How evenly a model serves the clients: best, worst and spread of a per-client number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from accord.errors import DataError


@dataclass(frozen=True)
class Spread:
    """A per-client number (accuracy, loss) summed up over the clients that have one."""

    best: float  # the largest value; FedUFO's P_b for accuracies
    worst: float  # the smallest; P_w
    mean: float  # every client counts the same
    std: float  # population standard deviation; P_std
    deciles: tuple[float, ...]  # the nine values below which 10 %, 20 %, ... 90 % of the clients lie
    weighted_mean: float | None  # every sample counts the same; None when no sizes were given
    clients: int
    skipped: int  # clients without test data


def spread(values: npt.ArrayLike, sizes: npt.ArrayLike | None = None) -> Spread:
    """Spread of one value per client; NaN marks a client without test data, which is skipped and counted.

    `sizes` are test samples per client. Deciles interpolate linearly between clients.

    >>> s = spread([0.5, 1.0, float("nan")], sizes=[30, 10, 0])
    >>> s.best, s.worst, s.mean, s.std, s.weighted_mean, s.clients, s.skipped
    (1.0, 0.5, 0.75, 0.25, 0.625, 2, 1)
    """
    every = _column("values", values)
    has_data = ~np.isnan(every)
    kept = every[has_data]
    if kept.size == 0:
        raise DataError(f"none of the {every.size} clients has test data, so there is nothing to compare")
    if not np.isfinite(kept).all():
        raise DataError("per-client values must be finite numbers (NaN for a client without test data)")
    weighted: float | None = None
    if sizes is not None:
        weight = _column("sizes", sizes)
        if weight.shape != every.shape:
            raise DataError(f"got {every.size} values but {weight.size} sizes; give one of each per client")
        weight = weight[has_data]
        if not np.isfinite(weight).all() or (weight < 0).any() or weight.sum() == 0:
            raise DataError("sizes must be sample counts of 0 or more, and not all of them 0")
        weighted = float(np.average(kept, weights=weight))
    return Spread(
        best=float(kept.max()),
        worst=float(kept.min()),
        mean=float(kept.mean()),
        std=float(kept.std()),
        deciles=tuple(np.percentile(kept, range(10, 100, 10)).tolist()),
        weighted_mean=weighted,
        clients=int(kept.size),
        skipped=int(every.size - kept.size),
    )


def spread_record(
    values: npt.ArrayLike, sizes: npt.ArrayLike | None = None, better: str | None = "higher"
) -> dict[str, Any]:
    """The spread in types JSON keeps; where lower values are better, the best is the smallest.

    `undefined` is there where clients have test data and no value: an AUROC of samples of one class.
    """
    record = asdict(spread(values, sizes))
    if better == "lower":
        record["best"], record["worst"] = record["worst"], record["best"]
    undefined = int((np.isnan(values) & (np.asarray(sizes) > 0)).sum()) if sizes is not None else 0
    return {**record, "deciles": list(record["deciles"]), **({"undefined": undefined} if undefined else {})}


def in_short(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a summary keeps of it."""
    return {name: record[name] for name in ("best", "worst", "mean", "std", "undefined") if name in record}


def _column(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers, one per client: {error}") from error
    if column.ndim != 1:
        raise DataError(f"{name} must be a list of one number per client, got shape {column.shape}")
    return column
