"""Federations of a few samples with given labels, for numbers by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from accord.data.federated import FederatedData, Groups, Pool


def federation(
    labels: Sequence[Sequence[int]],
    *,
    width: int = 6,
    names: tuple[str, ...] = (),
    test: Sequence[int] = (0, 1, 0, 1),
    x: torch.Tensor | None = None,
    test_x: torch.Tensor | None = None,
) -> FederatedData:
    """A client for every list of classes; inputs are drawn unless they are given."""
    generator = torch.Generator().manual_seed(len(labels))
    y = torch.tensor([label for one in labels for label in one])
    ends = np.cumsum([0, *(len(one) for one in labels)])
    held = torch.randn(len(test), width, generator=generator)
    shares = np.array_split(np.arange(len(test)), len(labels))
    return FederatedData(
        "small",
        Pool(torch.randn(len(y), width, generator=generator) if x is None else x, y),
        Pool(held if test_x is None else test_x, torch.tensor(test)),
        max(int(y.max()), *test) + 1,
        Groups.of([range(start, end) for start, end in pairwise(ends)]),
        Groups.of([[]] * len(labels)),
        Groups.of(shares),
        names=names,
    )
