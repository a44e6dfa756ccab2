"""DP-SGD against a loop over samples, written here; batches drawn sample by sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from accord.client import Request, Site, Work, run_client
from accord.core import persample
from accord.core.keys import Key
from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.core.types import Batch, weighted_mean
from support.federation import TinyRun, tiny_data


@pytest.mark.parametrize("clip", [0.05, 1.0, 1e6])
def test_clipped_gradients_are_those_of_a_loop(clip: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    x, y = torch.randn(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    total = [torch.zeros_like(p) for p in network.parameters()]
    for i in range(5):  # the sixth is padding
        loss = torch.nn.functional.cross_entropy(network(x[i : i + 1]), y[i : i + 1])
        grads = torch.autograd.grad(loss, list(network.parameters()))
        length = float(sum(g.double().square().sum() for g in grads)) ** 0.5
        for sum_, g in zip(total, grads, strict=True):
            sum_ += g * min(1.0, clip / length)

    class Task:
        plan = Plan(batch_size=4)

        def objective(self, job: object, carry: object, leaves: dict, batch: Batch) -> tuple[torch.Tensor, ...]:
            out = torch.func.functional_call(network, leaves["model"], (batch.x,))
            return (torch.nn.functional.cross_entropy(out, batch.y),)

    params = dict(network.named_parameters())
    info = {"examples": torch.tensor(9), "lr": torch.tensor(0.1)}
    job = type("Job", (), {"info": info})()
    carry = {"metrics": {"loss": torch.zeros((), dtype=torch.float64)}}
    batch = Batch(x, y, torch.tensor([1.0] * 5 + [0.0]), torch.arange(6), {})
    found, (_, seen) = PerSample(clip, 0.0).gradients(Task(), job, carry, {"model": params}, batch)  # type: ignore[arg-type]
    assert float(seen) == 5
    for mine, name in zip(total, params, strict=True):
        assert torch.allclose(found["model"][name], mine / 4, rtol=2e-3, atol=1e-6)  # a norm counts 0.1 % more
        if clip == 1e6:
            assert torch.allclose(found["model"][name], mine / 4, rtol=1e-5, atol=1e-7)
    # noise: z C / B wide, the expected batch of four, not the five that came
    torch.manual_seed(1)
    wide = PerSample(clip, 2.0)
    noisy = torch.cat(
        [
            (wide.gradients(Task(), job, carry, {"model": params}, batch)[0]["model"][n] - found["model"][n]).flatten()  # type: ignore[arg-type]
            for n in params
            for _ in range(3)
        ]
    )
    assert float(noisy.std()) == pytest.approx(2.0 * clip / 4, rel=5 / (2 * noisy.numel()) ** 0.5)
    # a client with fewer samples than a batch is divided by what it has
    info["examples"] = torch.tensor(3)
    few, _ = PerSample(clip, 0.0).gradients(Task(), job, carry, {"model": params}, batch)  # type: ignore[arg-type]
    name = next(iter(params))
    assert torch.allclose(few["model"][name], found["model"][name] * 4 / 3, rtol=1e-5)
    # as many samples at once as their gradients fit: 343 numbers each
    info["examples"] = torch.tensor(9)
    width = sum(p.numel() for p in params.values())
    assert width == 64 * 5 + 5 + 5 * 3 + 3
    for room, calls in ((1, 6), (2 * width + 1, 3), (5 * width, 2), (6 * width, 1)):
        asked = []

        class Watched(Task):
            def objective(self, *given: object) -> tuple[torch.Tensor, ...]:
                asked.append(1)  # noqa: B023
                return super().objective(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(persample, "MOST_VALUES", room)
        parts, (loss, _) = PerSample(clip, 0.0).gradients(Watched(), job, carry, {"model": params}, batch)  # type: ignore[arg-type]
        assert len(asked) == calls
        assert all(torch.allclose(parts["model"][n], found["model"][n], atol=1e-6) for n in params)
        with torch.no_grad():
            whole = torch.nn.functional.cross_entropy(network(x[:5]), y[:5], reduction="sum")
        assert float(loss) == pytest.approx(float(whole), rel=1e-5)
    # nobody was drawn: noise alone
    empty = Batch(x[:0], y[:0], torch.zeros(0), torch.arange(0), {})
    nothing, (loss, _) = PerSample(clip, 0.0).gradients(Task(), job, carry, {"model": params}, empty)  # type: ignore[arg-type]
    assert float(loss) == 0
    assert not any(bool(t.any()) for t in nothing["model"].values())


def test_every_sample_is_alone_in_its_batch_with_its_index_and_its_own_draws() -> None:
    """Slopes are (index + 1) r_i for the weight of sample i, whose padding has no weight to divide by."""

    class Task:
        plan = Plan(batch_size=0)

        def objective(self, job: object, carry: object, leaves: dict, batch: Batch) -> tuple[torch.Tensor, ...]:
            values = (leaves["model"]["w"] * batch.x).sum(1) * (batch.index + 1)
            return (weighted_mean(values, batch.weight) * (1 + torch.rand(())),)

    job = type("Job", (), {"info": {"examples": torch.tensor(1), "lr": torch.tensor(0.1)}})()
    carry = {"metrics": {"loss": torch.zeros((), dtype=torch.float64)}}
    batch = Batch(torch.eye(3), torch.zeros(3), torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0, 6, 1]), {})
    torch.manual_seed(0)
    found, _ = PerSample(1e9, 0.0).gradients(Task(), job, carry, {"model": {"w": torch.ones(3)}}, batch)  # type: ignore[arg-type]
    first, second, padding = found["model"]["w"].tolist()
    assert 1 <= first <= 2
    assert 1 <= second / 7 <= 2
    assert second / 7 != pytest.approx(first), "dropout is another for each"
    assert padding == 0


def test_batches_are_drawn_sample_by_sample() -> None:
    plan = Plan(epochs=3, batch_size=8, poisson=True)
    batches = plan.schedule(np.random.default_rng(0), 40)
    assert len(batches) == 15 == plan.count(40)
    assert len({len(batch) for batch in batches}) > 1
    many = [len(b) for seed in range(60) for b in plan.schedule(np.random.default_rng(seed), 40)]
    assert np.mean(many) == pytest.approx(8.0, abs=5 * np.sqrt(40 * 0.2 * 0.8 / len(many)))
    assert np.var(many) == pytest.approx(40 * 0.2 * 0.8, rel=0.2)
    assert [len(b) for b in plan.schedule(np.random.default_rng(0), 5)] == [5] * 3  # fewer than a batch: all, always
    assert len(Plan(steps=7, batch_size=8, poisson=True).schedule(np.random.default_rng(0), 40)) == 7


def test_a_client_trains_and_its_noise_has_an_address() -> None:
    run = TinyRun("fedavg")
    task = replace(
        run.algorithm.tasks["train"],  # type: ignore[type-var]
        plan=Plan(batch_size=4, poisson=True),
        private=PerSample(1.0, 0.5),
    )
    shared = run.algorithm.message(run.state)
    results = []
    for client, round in ((1, 0), (1, 0), (2, 0), (1, 1)):
        site = Site(tiny_data(), Key(3), torch.device("cpu"))
        work = Work(client, {}, None)
        results.append(run_client(site, task, Request("train", round, 0.1, shared, [work]), work))
    first = results[0].reply["model"]
    name = next(iter(first))
    assert torch.equal(first[name], results[1].reply["model"][name])
    assert not torch.equal(first[name], results[2].reply["model"][name])
    assert not torch.equal(first[name], results[3].reply["model"][name])


def test_no_sample_ends_above_the_limit() -> None:
    """Lengths 5 over two trees, 1/2, 0 and 5: the norm counts a thousandth more than it is; padding counts nothing."""
    grads = {
        "model": {"w": torch.tensor([[3.0], [0.5], [0.0], [3.0]])},
        "other": {"v": torch.tensor([[[4.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]], [[0.0, 4.0]]])},
    }
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0])
    factors = PerSample(1.0, 0.0).factors(grads, weight)
    assert factors.tolist() == pytest.approx([1 / 5.005, 1.0, 1.0, 0.0])
    assert float(factors[0]) * 5 < 1
    assert PerSample(5.0, 0.0).factors(grads, weight).tolist() == pytest.approx([5 / 5.005, 1.0, 1.0, 0.0])
