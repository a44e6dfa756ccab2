"""On a CUDA device: stacked and compiled, clients learn what they learn one after another. Run by `make test-gpu`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.core.plan import Plan
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.precision import numerics
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore", "error:task .* cannot be"),  # torch's compiler warns of its own choices
]
SHAPE = (1, 28, 28)
FORM = {"compiled": True, "channels_last": True}


# A gradient hook, turns, outputs kept per example, a projector of its own, a graph layer.
NAMES = ["fedavg", "scaffold", "dann", "fedufo", "fedbr", "fedrane"]


def start(form: dict[str, bool], name: str = "fedavg", **options: Any) -> TinyRun:
    torch.compiler.reset()
    model = tiny_model("mcmahan_cnn", shape=SHAPE, device="cuda", form=form, **options.pop("network", {}))
    # Three clients: the first of all goes alone, to see what memory it takes, and only those after it are stacked.
    options = {"data": tiny_data(shape=SHAPE), "sampler": Given([0, 2, 3], [1, 2, 3]), **options}
    return TinyRun(name, model=model, **options)


def differs(a: TinyRun, b: TinyRun, tolerance: float) -> list[str]:
    """The model's tensors that differ by more than `tolerance` of their largest value."""
    mine, theirs = a.state["model"], b.state["model"]
    return [leaf for leaf, value in theirs.items() if (mine[leaf] - value).abs().max() > tolerance * value.abs().max()]


@pytest.mark.parametrize("name", NAMES)
def test_methods_agree_in_double_precision(name: str, float64: None) -> None:
    data = tiny_data(shape=SHAPE, dtype=torch.float64)
    stacked = start(FORM, name, executor=Batched, data=data).rounds(1)
    assert not differs(stacked, start({}, name, data=data).rounds(1), 1e-9)


def test_one_round_in_single_precision() -> None:
    with numerics("fp32"):
        stacked = start(FORM, executor=Batched).rounds(1)
        assert not differs(stacked, start({}).rounds(1), 1e-4)


def test_bf16_moves_the_model_like_single_precision() -> None:
    moves = []
    for form in ({**FORM, "bf16": True}, {}):
        run = start(form, executor=Batched, lr=0.001, plan=Plan(steps=2, batch_size=4))
        before = {leaf: value.clone() for leaf, value in run.state["model"].items()}
        run.rounds(1)
        moves.append({leaf: value - before[leaf] for leaf, value in run.state["model"].items()})
    for leaf, move in moves[1].items():
        assert torch.linalg.norm(moves[0][leaf] - move) < 0.2 * torch.linalg.norm(move), leaf


def test_a_compiled_run_repeats_to_the_bit_with_dropout_too() -> None:
    with numerics("tf32"):
        runs = [start(FORM, executor=Batched, network={"dropout": 0.5}).rounds(2) for _ in range(2)]
    assert equal_trees(runs[0].state, runs[1].state)
