"""FedMMD and its L2 variant against loops written from the formulas, in double precision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedmmd import (
    FIXED_WIDTHS,
    MMD,
    RELATIVE_WIDTHS,
    Kernel,
    OutputL2,
    fedl2,
    fedmmd,
    mmd,
    squared_distances,
)
from accord.core.algorithm import Method, Setup
from accord.core.model import Model, Out
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.core.task import Corner, Part
from accord.core.types import Batch, Job
from accord.errors import ConfigError
from accord.executors import sequential
from accord.executors.processes import Processes
from accord.models.network import Network
from accord.parts import lookup
from accord.parts.averaging import averaging
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params, forward, gradient, samples

COHORTS = ([0, 2], [1, 3], [0, 1])
WIDTHS = [10.0**k for k in range(-6, 1)] + [5.0 * k for k in range(1, 8)] + [10.0**k for k in range(2, 7)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with sequential.one_thread():
        yield


def loops(x: np.ndarray, y: np.ndarray, widths: list[float]) -> float:
    """Biased MMD^2, one pair and one kernel at a time."""

    def mean_kernel(a: np.ndarray, b: np.ndarray) -> float:
        values = [
            sum(math.exp(-sum((p - q) ** 2 for p, q in zip(u, v, strict=True)) / (2 * s)) for s in widths)
            for u, v in itertools.product(a, b)
        ]
        return math.fsum(values) / len(values)

    return mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)


def dan_widths(x: np.ndarray, y: np.ndarray) -> list[float]:
    """2^-3 to 2^1 times the mean squared distance over all pairs of rows, a row with itself included."""
    both = np.concatenate([x, y])
    distances = [float(((a - b) ** 2).sum()) for a, b in itertools.product(both, both)]
    return [2.0**k * math.fsum(distances) / len(distances) for k in range(-3, 2)]


def median_widths(x: np.ndarray, y: np.ndarray) -> list[float]:
    """2^-3 to 2^1 times the mean squared distance between two different rows of the two sets together."""
    both = np.concatenate([x, y])
    distances = [float(((a - b) ** 2).sum()) for a, b in itertools.combinations(both, 2)]
    return [2.0**k * math.fsum(distances) / len(distances) for k in range(-3, 2)]


RELATIVE = {"median": median_widths, "dan": dan_widths}


def ours(x: Tensor, y: Tensor, kernel: Kernel = "fixed", weight: Tensor | None = None) -> Tensor:
    weight = torch.ones(len(x), dtype=x.dtype) if weight is None else weight
    widths = FIXED_WIDTHS if kernel == "fixed" else RELATIVE_WIDTHS
    return mmd(x, y, weight, x.new_tensor(widths), kernel)


def pair(rows: int = 5, columns: int = 3, apart: float = 0.5, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    return torch.tensor(x), torch.tensor(x + apart * rng.normal(size=x.shape))


# the discrepancy ---------------------------------------------------------------------
@pytest.mark.parametrize("kernel", ["fixed", "median", "dan"])
@pytest.mark.parametrize("apart", [1e-3, 0.5, 20.0])
def test_mmd_against_loops(kernel: str, apart: float) -> None:
    x, y = pair(apart=apart)
    widths = WIDTHS if kernel == "fixed" else RELATIVE[kernel](x.numpy(), y.numpy())
    assert float(ours(x, y, kernel)) == pytest.approx(loops(x.numpy(), y.numpy(), widths), rel=1e-10, abs=1e-12)


def test_mmd_by_hand() -> None:
    """Points 0, 0 and 2, 2: every kernel is 1 within a set and exp(-4 / 2s) across."""
    x, y = torch.zeros(2, 1, dtype=torch.float64), torch.full((2, 1), 2.0, dtype=torch.float64)
    assert float(ours(x, y)) == pytest.approx(38 - 2 * sum(math.exp(-2 / s) for s in WIDTHS), rel=1e-12)
    # Six pairs of four points, four of them at distance 4: mean 8/3.
    expected = 10 - 2 * sum(math.exp(-4 / (2 * 2.0**k * 8 / 3)) for k in range(-3, 2))
    assert float(ours(x, y, "median")) == pytest.approx(expected, rel=1e-12)
    # Sixteen pairs with those of a point and itself, eight of them at distance 4: mean 2.
    expected = 10 - 2 * sum(math.exp(-4 / (2 * 2.0**k * 2)) for k in range(-3, 2))
    assert float(ours(x, y, "dan")) == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(1e-3, 30), st.sampled_from(["fixed", "median", "dan"]))
@settings(deadline=None, max_examples=30)
def test_mmd_is_symmetric_and_not_negative(seed: int, rows: int, apart: float, kernel: str) -> None:
    x, y = pair(rows, apart=apart, seed=seed)
    there, back = float(ours(x, y, kernel)), float(ours(y, x, kernel))
    assert there == pytest.approx(back, abs=1e-12)
    assert there > -1e-12
    assert float(ours(x, x.clone(), kernel)) == 0


@pytest.mark.parametrize("kernel", ["fixed", "median", "dan"])
def test_equal_rows_give_numbers(kernel: str) -> None:
    """All outputs alike: the mean distance is 0, and must not be divided by."""
    y = torch.ones(3, 2).requires_grad_()
    value = ours(torch.ones(3, 2), y, kernel)
    assert value.item() == 0
    assert torch.equal(torch.autograd.grad(value, y)[0], torch.zeros(3, 2))


@pytest.mark.parametrize("kernel", ["fixed", "median", "dan"])
def test_padding_does_not_count(kernel: str) -> None:
    x, y = pair()
    y.requires_grad_()
    kept = torch.tensor([True, True, False, True, False])
    value = ours(x, y, kernel, kept.double())
    assert value.item() == pytest.approx(ours(x[kept], y[kept], kernel).item(), rel=1e-12)
    grad = torch.autograd.grad(value, y)[0]
    assert torch.equal(grad[~kept], torch.zeros(2, 3, dtype=torch.float64))


@pytest.mark.parametrize("kernel", ["fixed", "median", "dan"])
def test_gradient_against_finite_differences(kernel: str) -> None:
    x, y = pair()
    widths = WIDTHS if kernel == "fixed" else RELATIVE[kernel](x.numpy(), y.numpy())  # constants for the gradient
    y.requires_grad_()
    grad = torch.autograd.grad(ours(x, y, kernel), y)[0]
    for place in np.ndindex(*y.shape):
        moved = [y.detach().numpy().copy() for _ in range(2)]
        moved[0][place] += 1e-6
        moved[1][place] -= 1e-6
        slope = (loops(x.numpy(), moved[0], widths) - loops(x.numpy(), moved[1], widths)) / 2e-6
        assert float(grad[place]) == pytest.approx(slope, abs=1e-7)


@given(st.integers(0, 10_000), st.floats(-4, 4))
@settings(deadline=None, max_examples=30)
def test_distances_keep_their_digits(seed: int, magnitude: float) -> None:
    """Single precision, far from the origin, against differences in double precision."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(1, 10)) * 10**magnitude
    a, b = (torch.tensor(base + rng.normal(size=(6, 10)) * 1e-3, dtype=torch.float32) for _ in range(2))
    exact = (a.double()[:, None] - b.double()[None]).square().sum(-1)
    assert torch.allclose(squared_distances(a, b).double(), exact, rtol=1e-6, atol=0)
    own = squared_distances(a, a)
    assert bool((own >= 0).all())
    assert torch.equal(own.diagonal(), torch.zeros(6))
    assert torch.equal(own, own.T)


def test_no_gradient_below_the_floor() -> None:
    x, y = pair(apart=1e-6)
    y.requires_grad_()
    corner = {"widths": x.new_tensor(FIXED_WIDTHS)}
    weight = torch.ones(5, dtype=torch.float64)
    assert 0 < ours(x, y).item() < 1e-4
    value = MMD(2.0).distance(x, y, weight, corner)
    assert value.item() == 1e-4
    assert torch.equal(torch.autograd.grad(value, y)[0], torch.zeros_like(x))
    lower = MMD(2.0, floor=0.0).distance(x, y, weight, corner)
    assert lower.item() == pytest.approx(ours(x, y).item())
    assert float(torch.autograd.grad(lower, y)[0].abs().max()) > 0


def test_l2_by_hand() -> None:
    """Half the sum, 0.5 (1 + 4 + 9), and not the padded row."""
    x, y = torch.tensor([[1.0, 2.0], [0.0, 3.0], [50.0, 50.0]]), torch.zeros(3, 2)
    assert float(OutputL2(9.0).distance(x, y, torch.tensor([1.0, 1.0, 0.0]), {})) == 7.0


# a local step, rounds ---------------------------------------------------------------------
Penalty = Callable[[Tensor, Tensor], Tensor]


def hidden(params: Params, x: Tensor) -> Tensor:
    (w,) = (p for n, p in params.items() if p.dim() == 2 and not n.startswith("head"))
    (b,) = (p for n, p in params.items() if p.dim() == 1 and not n.startswith("head"))
    return torch.relu(x.flatten(1) @ w.T + b)


def dense_mmd(g: Tensor, o: Tensor, widths: list[float]) -> Tensor:
    """The formula on all pairs at once, differences written out."""

    def mean_kernel(a: Tensor, b: Tensor) -> Tensor:
        d = ((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(2)
        return sum((-d / (2 * s)).exp().mean() for s in widths)

    return mean_kernel(g, g) + mean_kernel(o, o) - 2 * mean_kernel(g, o)


def floored(value: Tensor, floor: float = 1e-4) -> Tensor:
    return value if value.item() > floor else torch.tensor(floor)


def fixed_penalty(g: Tensor, o: Tensor, floor: float = 1e-4) -> Tensor:
    return floored(dense_mmd(g, o, WIDTHS), floor)


def dan_penalty(g: Tensor, o: Tensor) -> Tensor:
    return floored(dense_mmd(g, o, dan_widths(g.detach().numpy(), o.detach().numpy())))


def median_penalty(g: Tensor, o: Tensor) -> Tensor:
    return floored(dense_mmd(g, o, median_widths(g.detach().numpy(), o.detach().numpy())))


def l2_penalty(g: Tensor, o: Tensor) -> Tensor:
    return ((g - o) ** 2).sum() / 2


class Case(NamedTuple):
    factory: Callable[..., Method]
    options: dict[str, object]
    penalty: Penalty
    on: Callable[[Params, Tensor], Tensor] = forward


CASES = [
    Case(fedmmd, {"lam": 0.3}, fixed_penalty),
    Case(fedmmd, {"lam": 0.3, "on": "features"}, fixed_penalty, hidden),
    Case(fedmmd, {"lam": 2.0, "kernel": "median"}, median_penalty),
    Case(fedmmd, {"lam": 2.0, "kernel": "dan"}, dan_penalty),
    Case(fedmmd, {"lam": 0.3, "floor": 0.5}, partial(fixed_penalty, floor=0.5)),
    Case(fedl2, {"lam": 0.05}, l2_penalty),
    Case(fedl2, {"lam": 0.05, "on": "features"}, l2_penalty, hidden),
]


def train(run: TinyRun, client: int, start: Params, round: int, case: Case) -> Params:
    x, y = samples(run, client)
    params = dict(start)
    velocity = {n: torch.zeros_like(p) for n, p in params.items()}
    for rows in run.batches(client, "train", round):
        index = torch.as_tensor(rows)

        def loss(p: Params, index: Tensor = index) -> Tensor:
            term = case.penalty(case.on(start, x[index]), case.on(p, x[index]))
            return F.cross_entropy(forward(p, x[index]), y[index]) + case.options["lam"] * term

        grads = gradient(loss, params)
        velocity = {n: 0.5 * velocity[n] + grads[n] for n in params}
        params = {n: p - 0.1 * velocity[n] for n, p in params.items()}
    return params


def built(factory: Callable[..., Method], options: dict[str, object], **more: object) -> TinyRun:
    data, model = tiny_data(dtype=torch.get_default_dtype()), tiny_model()
    more = {"optimizer": SGD(0.5), **more}
    return TinyRun(factory(tiny_setup(data, model, **more), **options), data=data, model=model, **more)


@pytest.mark.parametrize("case", CASES)
def test_one_round_of_every_client(case: Case, float64: None) -> None:
    """Local models after several steps each, and their plain mean although sizes differ."""
    run = built(case.factory, case.options)
    start = dict(run.state["model"])
    models = [train(run, k, start, 0, case) for k in range(4)]
    run.rounds(1)
    assert run.replies is not None
    for reply, model in zip(run.replies.each("model"), models, strict=True):
        assert all(torch.allclose(reply[n], model[n], atol=1e-9, rtol=1e-9) for n in model)
    plain = TinyRun(fedavg(replace(run.setup, plan=run.algorithm.tasks["train"].plan)), data=run.data)
    assert not equal_trees(run.state, plain.rounds(1).state)
    for n, value in run.state["model"].items():
        assert torch.allclose(value, sum(model[n] for model in models) / 4, atol=1e-9)


@pytest.mark.parametrize("case", [CASES[0], CASES[4]])
def test_three_rounds_with_partial_participation(case: Case, float64: None) -> None:
    run = built(case.factory, case.options, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = [train(run, k, w, round, case) for k in cohort]
        w = {n: (models[0][n] + models[1][n]) / 2 for n in w}
    run.rounds(3)
    assert all(torch.allclose(run.state["model"][n], w[n], atol=1e-8) for n in w)


def test_first_step_is_plain_sgd(float64: None) -> None:
    """Both streams agree at first, so the discrepancy lies under its floor; the loss shows the floor."""
    plan = Plan(epochs=0, steps=1, batch_size=4)
    run = built(fedmmd, {"lam": 0.5}, plan=plan).rounds(1)
    plain = built(fedavg, {"weight": "uniform"}, plan=plan).rounds(1)
    assert all(torch.allclose(run.state["model"][n], p, atol=1e-14) for n, p in plain.state["model"].items())
    assert run.replies is not None
    assert plain.replies is not None
    extra = (run.replies.metric("loss") - plain.replies.metric("loss")) / run.replies.metric("seen")
    assert torch.allclose(extra, torch.full_like(extra, 0.5 * 1e-4), atol=1e-12)


# what changes nothing ---------------------------------------------------------------------
@pytest.mark.parametrize("factory", [fedmmd, fedl2])
@pytest.mark.parametrize("weight", ["uniform", "examples"])
def test_without_weight_it_is_fedavg(factory: Callable[..., Method], weight: str) -> None:
    """Bit for bit, the short last batch (client 1 has 9 samples) included."""
    run = built(factory, {"lam": 0.0, "weight": weight}).rounds(2)
    assert equal_trees(run.state, built(fedavg, {"weight": weight}).rounds(2).state)


@pytest.mark.parametrize("size", [1, 4, 7])
def test_chunks_do_not_change_the_outputs(size: int) -> None:
    x = torch.arange(30.0).view(15, 2)
    assert torch.equal(lookup.in_chunks(lambda part: part * 2, x, size), x * 2)
    assert lookup.in_chunks(lambda part: part * 2, x[:0], size).shape == (0, 2)


def test_the_frozen_stream_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = Model.reference

    def counted(self: Model, params: Params, buffers: Params, x: Tensor, fuse: object = None) -> object:
        seen.append(len(x))
        return plain(self, params, buffers, x)

    monkeypatch.setattr(Model, "reference", counted)
    built(fedmmd, {"kernel": "dan"}).rounds(1)
    assert seen == [6, 9, 12, 15]
    built(fedl2, {}).rounds(1)
    assert seen == 2 * [6, 9, 12, 15]
    built(fedl2, {"lam": 0.0}).rounds(1)
    assert len(seen) == 8
    built(fedmmd, {}).rounds(1)
    assert set(seen[8:]) == {4}, "the narrowest of the fixed kernels tell two roundings apart: batch by batch"


def test_products_that_round_otherwise_for_more_samples_are_no_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """As tf32 does on a GPU. Weights are equal in the first step, so that there is nothing to hold them to."""
    plain = Model.reference

    def rounded(self: Model, params: Params, buffers: Params, x: Tensor, fuse: object = None) -> Out:
        out = plain(self, params, buffers, x)
        return out if len(x) == 4 else Out(*(half * (1 + 2**-10) for half in out))

    monkeypatch.setattr(Model, "reference", rounded)
    one = Plan(steps=1, batch_size=4)
    held = built(fedmmd, {"lam": 10.0}, plan=one).rounds(1)
    assert equal_trees(held.state, built(fedavg, {"weight": "uniform"}, plan=one).rounds(1).state)


@dataclass(frozen=True)
class Halved(Part):
    """A part that changes the inputs, and says so."""

    honest: bool = True

    def batch(self, job: Job, corner: Corner, batch: Batch) -> Batch:
        return batch._replace(x=batch.x / 2, index=batch.index[:0] if self.honest else batch.index)


@pytest.mark.parametrize("part", [MMD(0.5, kernel="dan"), OutputL2(0.5)])
def test_mixed_batches_are_not_looked_up(part: Part, float64: None) -> None:
    """Halving the inputs on the way must be the same as halving them beforehand."""
    data, model = tiny_data(dtype=torch.float64), tiny_model()
    setup = tiny_setup(data, model)
    mixed = TinyRun(averaging(setup, Halved(), part), data=data, model=model).rounds(2)
    half = replace(data, train_pool=replace(data.train_pool, x=data.train_pool.x / 2))
    before = TinyRun(averaging(setup, part), data=half, model=model).rounds(2)
    looked_up = TinyRun(averaging(setup, Halved(honest=False), part), data=data, model=model).rounds(2)
    for name, value in before.state["model"].items():
        assert torch.allclose(mixed.state["model"][name], value, atol=1e-12)
    assert not torch.allclose(looked_up.state["model"]["head.bias"], before.state["model"]["head.bias"], atol=1e-6)


def test_batch_norm_keeps_its_buffers(float64: None) -> None:
    """The frozen stream runs in evaluation mode: only the local forward moves the running means."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5))
    model = Model(Network(nn.Identity(), body, nn.Linear(5, 3), (1, 8, 8)))
    data = tiny_data(dtype=torch.float64)
    setup = tiny_setup(data, model, plan=Plan(epochs=1, batch_size=3, last_batch="fill"))
    run = TinyRun(fedmmd(setup, lam=1e-9), data=data, model=model).rounds(1)
    plain = TinyRun(fedavg(setup, weight="uniform"), data=data, model=model).rounds(1)
    for name, value in plain.state["buffers"].items():
        assert torch.allclose(run.state["buffers"][name].double(), value.double(), atol=1e-6)


def test_sequential_and_processes_agree() -> None:
    data, model = tiny_data(), tiny_model()
    algorithm = fedmmd(tiny_setup(data, model), lam=0.4)
    one = TinyRun(algorithm, data=data, model=model).rounds(2)
    many = TinyRun(algorithm, data=data, model=model, executor=partial(Processes, workers=2))
    try:
        assert equal_trees(one.state, many.rounds(2).state)
    finally:
        many.close()


# settings ---------------------------------------------------------------------
def setup_with(**plan: object) -> Setup:
    return tiny_setup(tiny_data(), tiny_model(), plan=Plan(**plan))


def test_the_last_batch_is_filled_unless_asked_otherwise() -> None:
    setup = setup_with(batch_size=4)
    assert fedmmd(setup).local.plan.last_batch == "fill"
    assert fedmmd(replace(setup, free_last_batch=False)).local.plan.last_batch == "pad"
    assert fedl2(setup).local.plan.last_batch == "pad"


def test_batches_of_one_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"local.batch_size = 1.*at least 2"):
        fedmmd(setup_with(batch_size=1))
    assert fedl2(setup_with(batch_size=1)).local.plan.batch_size == 1


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf"), "0.1", True])
def test_bad_weights_are_refused(bad: object) -> None:
    for factory in (fedmmd, fedl2):
        with pytest.raises(ConfigError, match="lam"):
            factory(setup_with(), lam=bad)
    with pytest.raises(ConfigError, match="floor"):
        fedmmd(setup_with(), floor=bad)


def test_a_client_with_one_sample_survives() -> None:
    data, model = tiny_data(sizes=(1, 5)), tiny_model()
    for kernel in ("fixed", "median", "dan"):
        run = TinyRun(fedmmd(tiny_setup(data, model), lam=5.0, kernel=kernel), data=data, model=model).rounds(2)
        assert all(bool(torch.isfinite(p).all()) for p in run.state["model"].values())
