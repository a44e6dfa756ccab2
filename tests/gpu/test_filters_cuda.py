"""On a CUDA device: filters give the CPU's numbers, and samples are clipped one by one inside of recorded steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.executors.gpu.batched import Batched
from support.federation import Given, TinyRun, tiny_model

pytestmark = pytest.mark.gpu
OPTIONS: dict[str, Any] = {"sampler": Given([0, 2, 3], [1, 3, 0]), "plan": Plan(epochs=2, batch_size=4, poisson=True)}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.filterwarnings("ignore:task 'train' cannot be compiled")  # with compile = true they run side by side
def test_samples_clipped_one_by_one_agree_with_the_cpu(compiled: bool, float64: None) -> None:
    clipped = {**OPTIONS, "private": PerSample(0.3, 0.0)}
    alone = TinyRun("scaffold", model=tiny_model(), **clipped).rounds(2)
    model = tiny_model(device="cuda", form={"compiled": compiled})
    together = TinyRun("scaffold", model=model, executor=Batched, **clipped).rounds(2)
    assert "train" not in together.executor._unfit  # it was recorded
    for leaf, value in alone.state["model"].items():
        assert torch.allclose(value, together.state["model"][leaf].cpu(), rtol=1e-6, atol=1e-8), leaf


def test_noise_is_new_in_every_recorded_step(float64: None) -> None:
    """A recorded step that repeated its noise would let it cancel: its width over steps says that it does not."""
    plan = Plan(steps=64, batch_size=4, poisson=True)
    noisy = {"sampler": Given([0]), "plan": plan, "private": PerSample(1e-9, 1e9), "lr": 1.0}
    run = TinyRun("fedavg", model=tiny_model(device="cuda"), executor=Batched, **noisy)
    before = {leaf: t.clone() for leaf, t in run.state["model"].items()}
    run.rounds(1)
    moved = torch.cat([(run.state["model"][leaf] - t).flatten() for leaf, t in before.items()])
    each = float(run.setup.schedule.at(0)) * 1.0 / 4  # of one step: lr z C / B
    assert float(moved.std()) == pytest.approx(each * 64**0.5, rel=0.2)
