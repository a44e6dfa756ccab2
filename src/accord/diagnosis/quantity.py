"""Quantity skew: do some clients hold much more than others?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accord.data.federated import FederatedData, Index
from accord.diagnosis.finding import Finding, called, graded, unknown

Floats = npt.NDArray[np.float64]
NAME, TITLE = "quantity", "Quantity skew"
MILD, STRONG = 0.3, 0.55  # of the Gini index beyond chance; log-normal sizes of deviation 0.5 and 1 have 0.28 and 0.52
SHOWN = 100


def quantity_skew(data: FederatedData) -> Finding:
    """Of all clients that may train."""
    members = np.array([k for k in range(len(data)) if k not in data.unseen], dtype=np.int64)
    sizes = np.asarray(data.sizes[members], dtype=np.int64)
    if len(sizes) < 2 or not sizes.sum():
        return unknown(NAME, TITLE, "Fewer than two clients: there are no sizes to compare.")
    index, by_chance = gini(sizes), gini_by_chance(float(sizes.mean()))
    severity = graded(index - by_chance, MILD, STRONG)
    order = np.argsort(-sizes, kind="stable")
    held = np.cumsum(sizes[order]) / sizes.sum()
    tenth = float(held[max(1, round(len(sizes) / 10)) - 1])
    empty = int((sizes == 0).sum())
    alike = effective(sizes)
    numbers: dict[str, float | int | None] = {
        "gini": index,
        "gini_by_chance": by_chance,
        "effective_clients": alike,
        "clients": len(sizes),
        "largest_share": float(held[0]),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "without_samples": empty,
    }
    largest, smallest = (called(data, int(members[k])) for k in (order[0], order[-1]))
    span = (
        f"every client holds {sizes.max():,} samples"
        if sizes.min() == sizes.max()
        else f"{smallest} holds {sizes.min():,} samples, {largest} {sizes.max():,}"
    )
    counted = f"they count like {alike:.1f} equal clients of {len(sizes)} (Gini {index:.2f})"
    if severity == "none":
        sentence = f"Clients are of comparable size: {span}; {counted}."
    else:
        share = f"the largest tenth of them holds {100 * tenth:.0f} % of all samples"
        sentence = f"Clients differ much in size: {span}; {counted}, and {share}."
    sentence += f" {empty} {'has' if empty == 1 else 'have'} no training samples." if empty else ""
    picked = order if len(order) <= SHOWN else order[np.linspace(0, len(order) - 1, SHOWN).round().astype(int)]
    return Finding(
        NAME,
        TITLE,
        severity,
        sentence,
        numbers,
        (largest,) if severity != "none" else (),
        {
            "kind": "bars",
            "labels": [called(data, int(members[k])) for k in picked],
            "values": sizes[picked].tolist(),
            "caption": "Training samples of each client"
            + (f", {SHOWN} of {len(sizes)}, the largest first" if len(order) > SHOWN else ", the largest first"),
        },
    )


def gini(sizes: Index) -> float:
    """0 where all are equal, towards 1 where one holds everything: half the mean difference of pairs over the mean."""
    ordered = np.sort(sizes).astype(np.float64)
    count, total = len(ordered), float(ordered.sum())
    if not total:
        return 0.0
    return float((2 * np.arange(1, count + 1) - count - 1) @ ordered / (count * total))


def gini_by_chance(mean: float) -> float:
    """Where every sample falls to any client alike: sizes of deviation sqrt(mean), whose Gini is 1 / sqrt(pi mean)."""
    return float(1 / np.sqrt(np.pi * max(mean, 1.0)))


def effective(sizes: Index) -> float:
    """How many equal clients weigh as evenly: 1 / sum of squared shares."""
    shares = sizes / sizes.sum()
    return float(1 / (shares**2).sum())
