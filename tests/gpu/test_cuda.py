"""On a CUDA device: every method gives the CPU's numbers, up to rounding. Run by `make test-gpu`.

In double precision: FedMMD's narrowest kernels (variance 1e-6) turn a rounding difference of single precision into
another gradient.
"""

from __future__ import annotations

import pytest
import torch

from accord.core.methods import ALGORITHMS
from accord.core.optim import SGD
from accord.executors.gpu.batched import Batched
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


@pytest.mark.filterwarnings("ignore", "error:task .* cannot be")  # torch's compiler warns of its own choices
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "moon", "fedcm"])
def test_a_kept_optimizer_side_by_side_agrees_with_the_cpu(name: str, compiled: bool, float64: None) -> None:
    kept = {"optimizer": SGD(0.9), "keeps_optimizer": True, "sampler": Given([0, 2, 3], [1, 3, 0], [0, 2, 1])}
    alone = TinyRun(name, model=tiny_model(), **kept).rounds(4)
    model = tiny_model(device="cuda", form={"compiled": compiled})
    together = TinyRun(name, model=model, executor=Batched, **kept).rounds(4)
    for leaf, value in alone.state["model"].items():
        assert torch.allclose(value, together.state["model"][leaf].cpu(), rtol=1e-6, atol=1e-8), leaf
    for client in range(4):
        mine, theirs = (run.store.get(client)["optimizer"] for run in (alone, together))
        assert mine.keys() == theirs.keys()
        assert all(torch.allclose(mine[leaf], theirs[leaf].cpu(), rtol=1e-6, atol=1e-8) for leaf in mine)
