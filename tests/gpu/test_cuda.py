"""On a CUDA device: every method gives the CPU's numbers, up to rounding. Run by `make test-gpu`.

In double precision: FedMMD's narrowest kernels (variance 1e-6) turn a rounding difference of single precision into
another gradient.
"""

from __future__ import annotations

import pytest
import torch

from accord.core.methods import ALGORITHMS
from support.federation import Given, TinyRun, tiny_model

pytestmark = pytest.mark.gpu
MODELS = {"fedfusion": "mcmahan_cnn", "fedbn": "fedbr_cnn"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_cuda_agrees_with_the_cpu(name: str, float64: None) -> None:
    kind = MODELS.get(name, "mlp")
    runs = {}
    for device in ("cpu", "cuda"):
        model = tiny_model(kind, device=device)
        runs[device] = TinyRun(name, model=model, sampler=Given([0, 2], [1, 3, 0]), with_test=True).rounds(2)
    for leaf, value in runs["cpu"].state["model"].items():
        other = runs["cuda"].state["model"][leaf]
        assert other.device.type == "cuda"
        assert torch.allclose(value, other.cpu(), rtol=1e-6, atol=1e-8), leaf
