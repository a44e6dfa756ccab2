"""On a CUDA device: recorded and compiled steps leave alone what the network's owner froze. Run by `make test-gpu`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.precision import numerics
from accord.executors.sequential import Sequential
from support.federation import TinyRun, suited, tiny_data
from support.frozen import check, tower, values

pytestmark = [
    pytest.mark.gpu,
    # Torch's compiler warns of its own choices; falling back would show nothing.
    pytest.mark.filterwarnings("ignore", "error:task .* cannot be"),
]


def run(name: str, executor: Any, **form: bool) -> TinyRun:
    torch.compiler.reset()
    plan = Plan(epochs=2, batch_size=4, last_batch="fill")
    options: dict[str, Any] = {"optimizer": SGD(momentum=0.5, weight_decay=0.1), "plan": plan, "with_test": True}
    model = suited(tower(), "cuda", form)
    return TinyRun(name, data=tiny_data((6, 8, 12, 15)), model=model, executor=executor, **options).rounds(3)


@pytest.mark.parametrize("form", [{}, {"channels_last": True}, {"bf16": True}, {"compiled": True}], ids=str)
@pytest.mark.parametrize("name", ["fedavgm", "scaffold", "moon", "fedrane", "ditto", "fedper"])
def test_nothing_of_it_moves(name: str, form: dict[str, bool]) -> None:
    with numerics("fp32"):
        found = run(name, Batched, **form)
        check(found, values(tower()))
        if form in ({}, {"channels_last": True}):
            same = run(name, Sequential, **form)
            for leaf, value in same.state["model"].items():
                assert (found.state["model"][leaf] - value).abs().max() <= 1e-3 * value.abs().max() + 1e-6, leaf
