"""Named sets of tensors."""

from __future__ import annotations

import torch

from accord.core.tensors import num_bytes


def test_bytes_of_trees() -> None:
    trees = {
        "model": {"w": torch.zeros(2, 3), "b": torch.zeros(3, dtype=torch.float16)},  # 24 + 6
        "counts": {"n": torch.tensor(1)},  # 8
        "empty": {},
    }
    assert num_bytes(trees) == 38
    assert num_bytes({}) == 0
