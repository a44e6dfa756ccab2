"""FedMix and NaiveMix: what is exchanged, the Taylor term by hand and by finite differences, whole rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedmix import GroupMeans, MixedWithMeans, TaylorMix, fedmix, naivemix
from accord.core.disclosure import Disclosure
from accord.core.plan import Plan
from accord.core.types import Batch, ClientData, Job
from accord.core.view import View
from accord.engine.exchange import LocalExchange
from accord.errors import ConfigError, DataError
from support.federation import SIZES, Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.personal import COHORTS, Params, by_samples, near, same_in_processes, tiny
from support.reference import forward, gradient, samples

Loss = Callable[[Params, Tensor, Tensor, Tensor, Tensor], Tensor]


def exchanged(run: TinyRun, size: int) -> tuple[Tensor, Tensor]:
    """Means of the groups of one shuffled pass, client after client."""
    xs, ys = [], []
    for k in range(4):
        x, y = samples(run, k)
        order = run.key.client(k).at("order.means", 0).permutation(SIZES[k])
        for left in range(0, SIZES[k] - size + 1, size):
            rows = order[left : left + size]
            xs.append(x[rows].mean(0))
            ys.append(torch.eye(3)[y[rows]].mean(0))
    return torch.stack(xs), torch.stack(ys)


def reference_rounds(run: TinyRun, size: int, loss: Loss) -> Params:
    xbar, ybar = exchanged(run, size)
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = []
        for k in cohort:
            x, y = samples(run, k)
            batches = run.batches(k, "train", round)
            draws = run.key.client(k).at("noise.train", round).random((len(batches), max(map(len, batches))))
            p = dict(w)
            for rows, numbers in zip(batches, draws, strict=True):
                picks = [int(u * len(xbar)) for u in numbers[: len(rows)]]
                args = (x[rows], y[rows], xbar[picks], ybar[picks])
                g = gradient(lambda q, args=args: loss(q, *args), p)
                p = {n: t - 0.1 * g[n] for n, t in p.items()}
            models.append(p)
        w = by_samples(models, cohort)
    return w


def naive_loss(p: Params, x: Tensor, y: Tensor, xbar: Tensor, ybar: Tensor) -> Tensor:
    logits = forward(p, 0.7 * x + 0.3 * xbar)
    return 0.7 * F.cross_entropy(logits, y) + 0.3 * F.cross_entropy(logits, ybar)


def taylor_loss(p: Params, x: Tensor, y: Tensor, xbar: Tensor, ybar: Tensor) -> Tensor:
    """Sample by sample, the derivative written out: one hidden layer of ReLUs, softmax minus one-hot."""
    (w1,) = (t for n, t in p.items() if t.dim() == 2 and n != "head.weight")
    (b1,) = (t for n, t in p.items() if t.dim() == 1 and n != "head.bias")
    total = 0.0
    for i in range(len(y)):
        s = 0.7 * x[i].flatten()
        inner = w1 @ s + b1
        logits = p["head.weight"] @ torch.relu(inner) + p["head.bias"]
        logs = F.log_softmax(logits, 0)
        slope = w1.T @ ((p["head.weight"].T @ (logs.exp() - torch.eye(3)[y[i]])) * (inner > 0))
        total = total - 0.7 * logs[y[i]] - 0.3 * (ybar[i] * logs).sum() + 0.21 * slope @ xbar[i].flatten()
    return total / len(y)


def published_loss(p: Params, x: Tensor, y: Tensor, xbar: Tensor, ybar: Tensor) -> Tensor:
    """The batch's mean is differentiated, and the products are averaged once more."""
    s = (0.7 * x).requires_grad_()
    logits = forward(p, s)
    first = 0.7 * F.cross_entropy(logits, y)
    (slope,) = torch.autograd.grad(first, s, create_graph=True)
    return first + 0.3 * F.cross_entropy(logits, ybar) + 0.3 * (slope * xbar).flatten(1).sum(1).mean()


@pytest.mark.parametrize(
    ("factory", "options", "loss"),
    [(naivemix, {}, naive_loss), (fedmix, {}, taylor_loss), (fedmix, {"as_published": True}, published_loss)],
)
def test_three_rounds_with_partial_participation(factory: Any, options: Any, loss: Loss, float64: None) -> None:
    run = tiny(factory, {"lam": 0.3, "means": 4, **options}, sampler=Given(*COHORTS))
    w = reference_rounds(run, 4, loss)
    assert near(run.rounds(3).state["model"], w)


def test_what_is_exchanged(float64: None) -> None:
    run = tiny(fedmix, {"means": 7})  # of 6, 9, 12 and 15 samples: nothing, one, one and two groups
    x, y = run.state["means"]["x"], run.state["means"]["y"]
    assert x.shape == (4, 1, 8, 8)
    assert torch.allclose(y.sum(1), torch.ones(4))
    xbar, ybar = exchanged(run, 7)
    assert torch.allclose(x, xbar)
    assert torch.allclose(y, ybar)


def test_naive_mixing_by_hand(float64: None) -> None:
    """A quarter of a mean: 3/4 x + 1/4 xbar, and the labels alike."""
    x, y = torch.tensor([[4.0, 8.0], [0.0, 4.0]]), torch.tensor([0, 1])
    means = {"x": torch.tensor([[8.0, 0.0], [4.0, 4.0]]), "y": torch.tensor([[0.5, 0.5], [0.0, 1.0]])}
    job = Job({"means": means}, {}, {}, {}, ClientData(x, y, x[:0], y[:0], 2))
    batch = Batch(x, y, torch.ones(2), torch.arange(2), {"fedmix.pick": torch.tensor([0.1, 0.9])})
    mixed = MixedWithMeans(0.25).batch(job, {}, batch)
    assert mixed.x.tolist() == [[5.0, 6.0], [1.0, 4.0]]
    assert mixed.y.tolist() == [[0.875, 0.125], [0.0, 1.0]]
    assert len(mixed.index) == 0


def test_the_taylor_term_is_the_slope_of_naive_mixing(float64: None) -> None:
    # d/dt of (1 - l) CE(f((1 - l) x + t xbar), y) at t = 0, times l.
    model = tiny_model(seed=3)
    maker = torch.Generator().manual_seed(0)
    x, xbar = torch.randn(2, 5, 1, 8, 8, generator=maker)
    y, ybar = torch.tensor([0, 1, 2, 1, 0]), torch.full((5, 3), 1 / 3)
    w, lam = model.init()[0], 0.2
    job = Job({"means": {"x": xbar, "y": ybar}}, {}, {}, {}, ClientData(x, y, x[:0], y[:0], 3))
    part = TaylorMix(lam, False)
    noise = {"fedmix.pick": torch.arange(5) / 5 + 0.01}
    batch = part.batch(job, {}, Batch(x, y, torch.ones(5), torch.arange(5), noise))
    assert len(batch.index) == 0
    with torch.enable_grad():
        found = part.loss(View(model, job, {}, {"model": w}, model.train(w, {}, batch.x), batch)).value
    logits = forward(w, 0.8 * x)
    rest = 0.8 * F.cross_entropy(logits, y) + 0.2 * F.cross_entropy(logits, ybar)
    h = 1e-5
    ends = [0.8 * F.cross_entropy(forward(w, 0.8 * x + t * xbar), y) for t in (h, -h)]
    assert float((found - rest).detach()) == pytest.approx(float(lam * (ends[0] - ends[1]) / (2 * h)), abs=1e-8)


def test_padding_changes_nothing(float64: None) -> None:
    model = tiny_model()
    w = model.init()[0]
    maker = torch.Generator().manual_seed(1)
    x, xbar = torch.randn(2, 4, 1, 8, 8, generator=maker)
    y = torch.tensor([0, 1, 2, 1])
    job = Job({"means": {"x": xbar, "y": torch.eye(3)[y]}}, {}, {}, {}, ClientData(x, y, x[:0], y[:0], 3))
    for published in (False, True):
        found = []
        for rows, weight in ((3, torch.ones(3)), (4, torch.tensor([1.0, 1.0, 1.0, 0.0]))):
            noise = {"fedmix.pick": torch.tensor([0.1, 0.9, 0.3, 0.6])}
            part = TaylorMix(0.4, published)
            batch = part.batch(job, {}, Batch(x[:rows], y[:rows], weight, torch.arange(rows), noise))
            with torch.enable_grad():
                out = model.train(w, {}, batch.x)
                found.append(float(part.loss(View(model, job, {}, {"model": w}, out, batch)).value.detach()))
        assert found[0] == pytest.approx(found[1], abs=1e-12)


@pytest.mark.parametrize("factory", [fedmix, naivemix])
def test_lam_zero_is_fedavg_bit_for_bit(factory: Any) -> None:
    assert equal_trees(tiny(factory, {"lam": 0.0}).rounds(2).state, tiny(fedavg).rounds(2).state)


@pytest.mark.parametrize("factory", [fedmix, naivemix])
def test_processes_give_the_same_bits(factory: Any) -> None:
    assert same_in_processes(factory, {"means": 5})


@pytest.mark.parametrize("factory", [fedmix, naivemix])
@pytest.mark.parametrize(("name", "value"), [("lam", 1.0), ("lam", -0.1), ("means", 0), ("means", 2.5)])
def test_bad_settings_are_refused(factory: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        factory(tiny_setup(tiny_data(), tiny_model()), **{name: value})


def test_groups_nobody_can_fill_are_refused() -> None:
    with pytest.raises(ConfigError, match="16"):
        tiny(fedmix, {"means": 16})


def test_clients_without_samples_are_not_asked_for_means(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[int]]] = []
    ask = LocalExchange.__call__

    def noted(self: Any, task: str, clients: Any, *rest: Any) -> Any:
        asked.append((task, list(clients)))
        return ask(self, task, clients, *rest)

    monkeypatch.setattr(LocalExchange, "__call__", noted)
    data, model = tiny_data(sizes=(6, 0, 1)), tiny_model()
    run = TinyRun(naivemix(tiny_setup(data, model), means=3), data=data, model=model)
    assert asked == [("means", [0, 2])]
    assert len(run.state["means"]["y"]) == 2


def test_a_mean_of_one_sample_is_that_sample() -> None:
    said = {count: GroupMeans(Plan(batch_size=count)).discloses()["means"] for count in (1, 2, 10)}
    assert said == {1: Disclosure.SAMPLE, 2: Disclosure.MEAN, 10: Disclosure.MEAN}


def test_inputs_that_have_no_mean_are_refused() -> None:
    tokens, y = torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 1])
    job = Job({}, {}, {}, {}, ClientData(tokens, y, tokens[:0], y[:0], 2))
    with pytest.raises(DataError, match="real numbers"):
        GroupMeans(Plan(batch_size=2)).begin(job)


def test_groups_by_hand() -> None:
    """Five samples in groups of two: two means of inputs and of labels, the fifth is not sent."""
    x, y = torch.tensor([[0.0], [4.0], [6.0], [8.0], [9.0]]), torch.tensor([0, 1, 1, 1, 0])
    job = Job({}, {}, {}, {}, ClientData(x, y, x[:0], y[:0], 3))
    task = GroupMeans(Plan(epochs=1, batch_size=2, last_batch="drop"))
    carry = task.begin(job)
    for rows in ([3, 0], [1, 2]):
        carry = task.step(job, carry, Batch(x[rows], y[rows], torch.ones(2), torch.tensor(rows), {}))
    sent = task.finish(job, carry)
    assert sent.reply["means"]["x"].tolist() == [[4.0], [5.0]]
    assert sent.reply["means"]["y"].tolist() == [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]
    assert (sent.memory, sent.metrics) == ({}, {})
