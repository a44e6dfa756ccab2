"""Rare classes: which are hardly there, and which only one client knows?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accord.data.description import describe
from accord.data.federated import FederatedData, Index
from accord.diagnosis.chance import SURE
from accord.diagnosis.finding import Finding, Severity, called, several, unknown

Floats = npt.NDArray[np.float64]
NAME, TITLE = "rare", "Rare classes"
RARE = 0.2  # of the samples that an even share would be, if that is not chance
MANY = 2.5  # clients that would hold a class by chance, of which only one does
SHOWN = 60


def rare_classes(data: FederatedData) -> Finding:
    """By counts of the training samples; of test samples only whether a class is there that nobody trains on."""
    if data.problem not in ("classification", "multilabel"):
        why = "Samples have no classes" if data.problem == "regression" else "A vocabulary has rare words by its nature"
        return unknown(NAME, TITLE, f"{why}: not defined for task {data.problem}.")
    counts, tested = _counts(data)
    totals, holders = counts.sum(0), (counts > 0).sum(0)
    names = data.classes if len(data.classes) == len(totals) else tuple(map(str, range(len(totals))))
    expected = expected_holders(np.asarray(data.sizes), totals)
    known = totals > 0
    even = totals.sum() / max(int(known.sum()), 1)
    scarce = known & (totals < RARE * even) & (totals < even - SURE * np.sqrt(even))
    alone = known & (holders == 1) & (expected >= MANY)
    untrained = ~known & (tested > 0)
    severity: Severity = "strong" if alone.any() or untrained.any() else "mild" if scarce.any() else "none"
    numbers: dict[str, float | int | None] = {
        "classes": int(known.sum()),
        "rare": int(scarce.sum()),
        "at_one_client": int(alone.sum()),
        "only_in_test": int(untrained.sum()),
        "fewest_samples": int(totals[known].min()) if known.any() else 0,
    }
    order = np.argsort(totals, kind="stable")
    return Finding(
        NAME,
        TITLE,
        severity,
        _sentence(names, totals, holders, scarce, alone, untrained, len(data)),
        numbers,
        tuple(called(data, int(np.flatnonzero(counts[:, c])[0])) for c in np.flatnonzero(alone)),
        {
            "kind": "pairs",
            "labels": [names[c] for c in order[:SHOWN]],
            "values": totals[order][:SHOWN].tolist(),
            "series": {
                "clients that hold it": holders[order][:SHOWN].tolist(),
                "clients that would by chance": expected[order][:SHOWN].round(1).tolist(),
            },
            "caption": "Samples of each class, the rarest first, and how many clients hold it",
        },
    )


def _counts(data: FederatedData) -> tuple[Index, Index]:
    """[K, C] in training, [C] in the test pool."""
    if data.problem == "classification":
        tested = np.bincount(data.test_pool.y.cpu().numpy().astype(np.int64), minlength=data.num_classes)
        return describe(data).counts, tested
    rows = data.train_pool.y.cpu().numpy().astype(np.int64)
    counts = np.stack([rows[data.train[k]].sum(0) for k in range(len(data))])
    return counts, data.test_pool.y.cpu().numpy().astype(np.int64).sum(0)


def expected_holders(sizes: Index, totals: Index) -> Floats:
    """[C] clients that would hold a class if samples were dealt by chance: sum over clients of 1 - (1 - p)^n."""
    sizes = sizes[sizes > 0]
    share = np.minimum(totals / max(int(sizes.sum()), 1), 1.0)
    return np.asarray((1 - (1 - share[None, :]) ** sizes[:, None]).sum(0), dtype=np.float64)


def _sentence(
    names: tuple[str, ...],
    totals: Index,
    holders: Index,
    scarce: npt.NDArray[np.bool_],
    alone: npt.NDArray[np.bool_],
    untrained: npt.NDArray[np.bool_],
    clients: int,
) -> str:
    def listed(which: npt.NDArray[np.bool_]) -> str:
        found = sorted(np.flatnonzero(which), key=lambda c: int(totals[c]))
        return several(tuple(names[c] for c in found))

    parts = []
    if alone.any():
        parts.append(f"{listed(alone)} {'is' if alone.sum() == 1 else 'are each'} held by a single client of {clients}")
    if untrained.any():
        parts.append(
            f"{listed(untrained)} {'is' if untrained.sum() == 1 else 'are'} tested but in nobody's training data"
        )
    if scarce.any():
        fewest = int(totals[scarce].min())
        parts.append(f"{listed(scarce)} {'is' if scarce.sum() == 1 else 'are'} rare (the rarest has {fewest} samples)")
    if not parts:
        known = totals[totals > 0]
        least = int(holders[totals > 0].min()) if len(known) else 0
        smallest = int(known.min()) if len(known) else 0
        return f"No class is rare: the smallest has {smallest:,} samples, each is at {least} clients or more."
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "."
