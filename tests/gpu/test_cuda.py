"""On a CUDA device: every method gives the CPU's numbers, up to rounding. Run by `make test-gpu`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from support.federation import Given, TinyRun, tiny_model

from accord.algorithms import ALGORITHMS

pytestmark = pytest.mark.gpu
CONVOLUTIONAL = {"fedfusion"}


@pytest.fixture(autouse=True)
def _exact_products() -> Iterator[None]:
    """Matrix products in full float32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("name", ALGORITHMS)
def test_cuda_agrees_with_the_cpu(name: str) -> None:
    kind = "mcmahan_cnn" if name in CONVOLUTIONAL else "mlp"
    runs = {}
    for device in ("cpu", "cuda"):
        model = tiny_model(kind, device=device)
        runs[device] = TinyRun(name, model=model, sampler=Given([0, 2], [1, 3, 0]), with_test=True).rounds(2)
    for leaf, value in runs["cpu"].state["model"].items():
        other = runs["cuda"].state["model"][leaf]
        assert other.device.type == "cuda"
        assert torch.allclose(value, other.cpu(), rtol=1e-4, atol=1e-5), leaf
