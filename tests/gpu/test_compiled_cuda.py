"""On a CUDA device: compiled steps side by side give what plain ones give one after another. Run by `make test-gpu`."""

from __future__ import annotations

import warnings

import pytest
import torch

from accord.engine.batched import Batched
from accord.engine.precision import numerics
from support.federation import Given, TinyRun, tiny_data, tiny_model

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]  # torch's compiler warns of its own choices
SHAPE = (1, 28, 28)
FORM = {"compiled": True, "channels_last": True}


@pytest.mark.parametrize("name", ["fedavg", "fedufo", "fedbr", "fedrane", "fedmix"])
def test_compiled_steps_agree(name: str) -> None:
    runs = []
    for compiled in (True, False):
        torch.compiler.reset()
        model = tiny_model("mcmahan_cnn", shape=SHAPE, device="cuda", form=FORM if compiled else None)
        extra = {"executor": Batched} if compiled else {}
        with numerics("fp32"), warnings.catch_warnings():
            warnings.filterwarnings("error", "task .* cannot be recorded")
            run = TinyRun(name, model=model, data=tiny_data(shape=SHAPE), sampler=Given([0, 2], [1, 3, 0]), **extra)
            runs.append(run.rounds(2))
    for leaf, value in runs[1].state["model"].items():
        assert torch.allclose(runs[0].state["model"][leaf], value, rtol=0, atol=1e-4 * float(value.abs().max())), leaf


def test_compiled_bf16_rounds_like_plain_bf16() -> None:
    """Its gradients must arrive: torch 2.11 loses those of a function of ours that converts many tensors at once."""
    moves = []
    for compiled in (True, False):
        torch.compiler.reset()
        form = {"compiled": compiled, "channels_last": True, "bf16": True}
        model = tiny_model("mcmahan_cnn", shape=SHAPE, device="cuda", form=form)
        run = TinyRun("fedavg", model=model, data=tiny_data(shape=SHAPE), executor=Batched)
        start = {leaf: value.clone() for leaf, value in run.state["model"].items()}
        run.rounds(1)
        moves.append({leaf: value - start[leaf] for leaf, value in run.state["model"].items()})
    for leaf, move in moves[1].items():
        assert torch.linalg.norm(moves[0][leaf] - move) < 0.05 * torch.linalg.norm(move), leaf
