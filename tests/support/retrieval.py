"""Mean average precision once more: one query, one item at a time."""

from __future__ import annotations

import torch
from torch import Tensor


def naive_map(features: Tensor, labels: Tensor) -> float | None:
    """Every sample searches among the others; None where nobody can be found."""
    averages = []
    for i in range(len(features)):
        items = [
            (-float(torch.cosine_similarity(features[i], features[j], dim=0)), j, bool(labels[i] == labels[j]))
            for j in range(len(features))
            if j != i
        ]
        hits, precisions = 0, []
        for rank, (_, _, match) in enumerate(sorted(items), start=1):
            if match:
                hits += 1
                precisions.append(hits / rank)
        if precisions:
            averages.append(sum(precisions) / len(precisions))
    return sum(averages) / len(averages) if averages else None
