"""VHL: the contrast by hand and row by row, the virtual set, whole rounds against a plain reference, with Mixup."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.algorithms.compose import compose
from accord.algorithms.fedavg import fedavg
from accord.algorithms.vhl import VirtualHomogeneity, supervised_contrast, vhl, virtual_set
from accord.core.types import Batch, ClientData, Job
from accord.core.view import View
from accord.errors import ConfigError, DataError
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.personal import COHORTS, FILLED, Params, by_samples, near, norm_model, same_in_processes, tiny
from support.reference import forward, gradient, samples

OPTIONS: dict[str, Any] = {
    "alpha": 0.5, "contrast": 0.8, "virtual_contrast": 0.3, "tau": 0.4, "count": 20, "size": 6
}  # fmt: skip


def supcon(rows: Tensor, labels: Tensor, tau: float) -> Tensor:
    """Anchor by anchor, with sums of exponentials."""
    unit = [r / r.norm().clamp(min=1e-4) for r in rows]
    found = []
    for i, anchor in enumerate(unit):
        rest = [j for j in range(len(unit)) if j != i]
        below = sum(torch.exp(anchor @ unit[a] / tau) for a in rest)
        partners = [j for j in rest if labels[j] == labels[i]]
        if partners:
            found.append(sum(-torch.log(torch.exp(anchor @ unit[p] / tau) / below) for p in partners) / len(partners))
    return sum(found) / len(found) if found else torch.zeros(())


def hidden(p: Params, x: Tensor) -> Tensor:
    (weight,) = (t for n, t in p.items() if t.dim() == 2 and n != "head.weight")
    (bias,) = (t for n, t in p.items() if t.dim() == 1 and n != "head.bias")
    return torch.relu(x.flatten(1) @ weight.T + bias)


def test_contrast_by_hand(float64: None) -> None:
    # Rows 0 and 1 point the same way and share a label; row 2 is at a right angle and has no partner.
    rows, labels = torch.tensor([[2.0, 0.0], [5.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 1, 0])
    expected = math.log(1 + math.exp(-1 / 0.5))
    assert float(supervised_contrast(rows, labels, torch.ones(3), 0.5)) == pytest.approx(expected)
    assert float(supervised_contrast(rows, torch.tensor([0, 1, 2]), torch.ones(3), 0.5)) == 0.0


def test_soft_labels_make_partners_in_part(float64: None) -> None:
    # Cosines 1 (rows 0 and 1) and 0 by tau = 0.5: of row 0, log q = -near for row 1, -near - 2 for row 2.
    rows, near = torch.tensor([[2.0, 0.0], [5.0, 0.0], [0.0, 1.0]]), math.log(1 + math.exp(-2))
    labels = torch.tensor([[1.0, 0.0], [0.25, 0.75], [0.0, 1.0]])  # 0 and 1 share a quarter, 1 and 2 three quarters
    each = [near, 0.25 * near + 0.75 * (near + 2), math.log(2)]
    expected = (0.25 * each[0] + each[1] + 0.75 * each[2]) / 2
    assert float(supervised_contrast(rows, labels, torch.ones(3), 0.5)) == pytest.approx(expected)
    # The less is shared, the less it pulls: two rows that count a quarter each are half a row, of at least one.
    labels = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
    assert float(supervised_contrast(rows, labels, torch.ones(3), 0.5)) == pytest.approx(0.5 * near)
    assert float(supervised_contrast(rows, torch.eye(3), torch.ones(3), 0.5)) == 0.0


@given(st.integers(2, 8), st.integers(0, 2**31), st.sampled_from([0.07, 0.5, 2.0]))
@settings(max_examples=20, deadline=None)
def test_contrast_properties(count: int, seed: int, tau: float) -> None:
    maker = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 4, generator=maker, dtype=torch.float64)
    labels = torch.randint(3, (count,), generator=maker)
    ones = torch.ones(count, dtype=torch.float64)
    found = float(supervised_contrast(rows, labels, ones, tau))
    assert found == pytest.approx(float(supcon(rows, labels, tau)), abs=1e-9)
    assert found >= 0
    assert found == pytest.approx(float(supervised_contrast(3 * rows, labels, ones, tau)), abs=1e-9)
    padded = torch.cat([rows, rows[:1] + 1]), torch.cat([labels, labels[:1]]), torch.cat([ones, 0 * ones[:1]])
    assert found == pytest.approx(float(supervised_contrast(*padded, tau)), abs=1e-9)
    assert found == pytest.approx(float(supervised_contrast(rows, F.one_hot(labels, 3).double(), ones, tau)), abs=1e-9)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 7, 5), (10,), (4, 6)])
def test_the_virtual_set(shape: tuple[int, ...]) -> None:
    x, y = virtual_set(5, 300, 3, shape, torch.float32)
    assert x.shape == (300, *shape)
    assert torch.bincount(y).tolist() == [100, 100, 100]
    assert float(x.mean()) == pytest.approx(0, abs=1e-4)
    assert float(x.std()) == pytest.approx(1, abs=1e-3)
    virtual_set.cache_clear()
    assert torch.equal(virtual_set(5, 300, 3, shape, torch.float32)[0], x)
    assert not torch.equal(virtual_set(6, 300, 3, shape, torch.float32)[0], x)
    # Classes can be told apart: samples lie nearer to their own class's mean than to the others'.
    means = torch.stack([x[y == c].flatten(1).mean(0) for c in range(3)])
    assert float((torch.cdist(x.flatten(1), means).argmin(1) == y).float().mean()) > 0.8


def test_only_images_are_smooth() -> None:
    """What was doubled three times has neighbours that are alike; the numbers of a vector have none."""
    images, _ = virtual_set(5, 60, 3, (1, 32, 32), torch.float32)
    vectors, _ = virtual_set(5, 60, 3, (32, 32), torch.float32)
    across, down = (images[..., 1:] * images[..., :-1]).mean(), (images[..., 1:, :] * images[..., :-1, :]).mean()
    assert min(float(across), float(down)) > 0.5
    assert abs(float((vectors[..., 1:] * vectors[..., :-1]).mean())) < 0.2


def reference_rounds(run: TinyRun, space: str) -> Params:
    v, c = virtual_set(run.key.number("virtual"), 20, 3, (1, 8, 8), torch.float64)
    look = hidden if space == "features" else forward
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = []
        for k in cohort:
            x, y = samples(run, k)
            batches = run.batches(k, "train", round)
            draws = run.key.client(k).at("noise.train", round).random((len(batches), 6))
            p = dict(w)
            for rows, numbers in zip(batches, draws, strict=True):
                picks = [int(u * 20) for u in numbers]

                def loss(q: Params, x: Tensor = x[rows], y: Tensor = y[rows], i: list[int] = picks) -> Tensor:
                    real, virtual = look(q, x), look(q, v[i])
                    joint = supcon(torch.cat([real, virtual.detach()]), torch.cat([y, c[i]]), 0.4)
                    total = F.cross_entropy(forward(q, x), y) + 0.5 * F.cross_entropy(forward(q, v[i]), c[i])
                    return total + 0.8 * joint + 0.3 * supcon(virtual, c[i], 0.4)

                g = gradient(loss, p)
                p = {n: t - 0.1 * g[n] for n, t in p.items()}
            models.append(p)
        w = by_samples(models, cohort)
    return w


@pytest.mark.parametrize("space", ["features", "logits"])
def test_three_rounds_with_partial_participation(space: str, float64: None) -> None:
    run = tiny(vhl, {**OPTIONS, "space": space}, sampler=Given(*COHORTS))
    assert all(len(rows) == 4 for k in range(4) for rows in run.batches(k, "train", 0))  # no short last batch
    w = reference_rounds(run, space)
    assert near(run.rounds(3).state["model"], w, 1e-8)


def shared(a: Tensor, b: Tensor) -> Tensor:
    """Of two soft labels."""
    return sum((a[c] * b[c] for c in range(3)), torch.zeros(()))


def soft_supcon(rows: Tensor, labels: Tensor, tau: float) -> Tensor:
    """Anchor by anchor; each pair of rows by what their labels share."""
    unit = [r / r.norm().clamp(min=1e-4) for r in rows]
    total, counted = torch.zeros(()), torch.zeros(())
    for i, anchor in enumerate(unit):
        rest = [j for j in range(len(unit)) if j != i]
        below = sum(torch.exp(anchor @ unit[a] / tau) for a in rest)
        parts = [shared(labels[i], labels[j]) for j in rest]
        logs = [torch.log(torch.exp(anchor @ unit[j] / tau) / below) for j in rest]
        pull = -sum(part * log for part, log in zip(parts, logs, strict=True))
        total = total + (pull / sum(parts) if sum(parts) > 1 else pull)
        counted = counted + min(sum(parts), torch.ones(()))
    return total / max(counted, torch.ones(()))


@pytest.mark.parametrize("order", [("mixup: alpha=0.6", "vhl"), ("vhl", "mixup: alpha=0.6")])
def test_with_mixup_the_mixed_samples_are_contrasted(order: tuple[str, str], float64: None) -> None:
    own = "vhl: alpha=0.5, contrast=0.8, virtual_contrast=0.3, tau=0.4, count=20, size=6"
    parts = tuple(own if name == "vhl" else name for name in order)
    run = tiny(compose, {"parts": parts}, sampler=Given([1]))
    v, c = virtual_set(run.key.number("virtual"), 20, 3, (1, 8, 8), torch.float64)
    x, y = samples(run, 1)
    batches, rng = run.batches(1, "train", 0), run.key.client(1).at("noise.train", 0)
    picks = rng.random((len(batches), 6)) if order[0] == "vhl" else None
    shares, keys = rng.beta(0.6, 0.6, len(batches)), rng.random((len(batches), 4))
    picks = rng.random((len(batches), 6)) if picks is None else picks
    p = dict(run.state["model"])
    for rows, share, key, numbers in zip(batches, shares, keys, picks, strict=True):
        a, i = torch.as_tensor(rows), torch.as_tensor([int(u * 20) for u in numbers])
        b = a[key[: len(rows)].argsort()]

        def loss(q: Params, a: Tensor = a, b: Tensor = b, i: Tensor = i, lam: float = share) -> Tensor:
            mixed = lam * x[a] + (1 - lam) * x[b]
            labels = torch.cat([lam * F.one_hot(y[a], 3) + (1 - lam) * F.one_hot(y[b], 3), F.one_hot(c[i], 3)])
            real, virtual, out = hidden(q, mixed), hidden(q, v[i]), forward(q, mixed)
            total = lam * F.cross_entropy(out, y[a]) + (1 - lam) * F.cross_entropy(out, y[b])
            total = total + 0.5 * F.cross_entropy(forward(q, v[i]), c[i]) + 0.3 * supcon(virtual, c[i], 0.4)
            return total + 0.8 * soft_supcon(torch.cat([real, virtual.detach()]), labels, 0.4)

        g = gradient(loss, p)
        p = {n: t - 0.1 * g[n] for n, t in p.items()}
    assert near(run.rounds(1).state["model"], p, 1e-8)


def test_without_weights_it_is_fedavg_bit_for_bit() -> None:
    none = {"alpha": 0.0, "contrast": 0.0, "virtual_contrast": 0.0}
    base = tiny(fedavg).rounds(2).state
    assert equal_trees(tiny(vhl, none).rounds(2).state, base)
    parts = ("vhl: alpha=0, contrast=0, virtual_contrast=0",)
    assert equal_trees(tiny(compose, {"parts": parts}).rounds(2).state, base)


@pytest.mark.parametrize("only", ["alpha", "contrast", "virtual_contrast"])
def test_every_term_alone(only: str) -> None:
    off = {"alpha": 0.0, "contrast": 0.0, "virtual_contrast": 0.0, "count": 30}
    moved = tiny(vhl, {**off, only: 1.0}, plan=FILLED).rounds(1).state["model"]
    plain = tiny(fedavg, plan=FILLED).rounds(1).state["model"]
    assert any(not torch.equal(moved[n], plain[n]) for n in plain)


def test_running_statistics_are_those_of_real_samples() -> None:
    run = tiny(vhl, {"count": 30}, model=norm_model(), plan=FILLED, sampler=Given([0])).rounds(1)
    count = next(t for n, t in run.state["buffers"].items() if n.endswith("num_batches_tracked"))
    assert int(count) == len(run.batches(0, "train", 0))


def test_processes_give_the_same_bits() -> None:
    assert same_in_processes(vhl, {"count": 60})


@pytest.mark.parametrize(
    ("name", "value"),
    [("alpha", -1.0), ("contrast", float("nan")), ("virtual_contrast", -0.1), ("tau", 0.0), ("count", 1), ("size", 1),
     ("count", 2), ("space", "maps")],
)  # fmt: skip
def test_bad_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        vhl(tiny_setup(tiny_data(), tiny_model()), **{name: value})


def test_one_virtual_sample_of_every_class_is_enough() -> None:
    assert vhl(tiny_setup(tiny_data(), tiny_model()), count=3).local.parts[1].count == 3


def test_batches_are_coupled_where_real_samples_are_contrasted() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    parts = [vhl(setup, contrast=contrast, count=9).local.parts[1] for contrast in (0.0, 0.5, 1.0)]
    assert [part.couples for part in parts] == [False, True, True]


def test_the_statistics_that_were_sent_are_left_alone() -> None:
    """Client 2 begins from what the server sent, not from what client 0's virtual samples made of it."""
    both = tiny(vhl, {"count": 30}, model=norm_model(), plan=FILLED, sampler=Given([0, 2])).rounds(1)
    alone = tiny(vhl, {"count": 30}, model=norm_model(), plan=FILLED, sampler=Given([2])).rounds(1)
    ours, theirs = both.replies.results[1].reply["buffers"], alone.replies.results[0].reply["buffers"]
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("space", ["features", "logits"])
def test_padding_is_not_contrasted(space: Any, float64: None) -> None:
    model = tiny_model()
    params, buffers = model.init()
    data = tiny_data(dtype=torch.float64)
    x, y = data.client(3)
    job = Job({"virtual": {"seed": torch.tensor(5)}, "buffers": buffers}, {}, {}, {}, ClientData(x, y, x, y, 3))
    part = VirtualHomogeneity(0.5, 0.8, 0.3, 0.4, 20, 6, space)
    carry = {part.name: part.begin(model, job)}
    found = []
    for rows in (3, 5):
        weight = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])[:rows]
        noise = {"vhl.pick": torch.linspace(0, 0.99, 6)}
        batch = Batch(x[:rows], y[:rows], weight, torch.arange(rows), noise)
        out = model.train(params, buffers, batch.x)
        found.append(float(part.loss(View(model, job, carry, {"model": params}, out, batch)).value))
    assert found[0] == pytest.approx(found[1], abs=1e-12)


def test_inputs_that_are_no_real_numbers_are_refused() -> None:
    tokens, y = torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 1])
    job = Job({"virtual": {"seed": torch.tensor(5)}, "buffers": {}}, {}, {}, {}, ClientData(tokens, y, tokens, y, 2))
    with pytest.raises(DataError, match="real numbers"):
        VirtualHomogeneity(1.0, 1.0, 0.1, 0.07, 20, 6, "features").begin(tiny_model(), job)


def noise(rng: np.random.Generator, *shape: int) -> Tensor:
    return torch.tensor(rng.standard_normal(shape), dtype=torch.float64)


def latents(rng: np.random.Generator) -> Tensor:
    """Seven samples of three classes in turn, half a standard deviation around a centre of 16 x 4 x 4."""
    centres, spread = noise(rng, 3, 16, 4, 4), noise(rng, 7, 16, 4, 4)
    return torch.stack([centres[i % 3] + 0.5 * spread[i] for i in range(7)])


def standard(made: Tensor) -> Tensor:
    return (made - made.mean()) / made.std()


def test_virtual_images_are_made_by_three_layers() -> None:
    """Convolve 3 x 3 within borders of 0, bend the negative to a fifth, double the sides; then paint the channels."""
    rng = np.random.Generator(np.random.Philox(5))
    z = latents(rng)
    kernels = [noise(rng, 16, 16, 3, 3) for _ in range(3)]
    paint = noise(rng, 2, 16)
    for kernel in kernels:
        z = F.unfold(z, 3, padding=1).mT @ kernel.flatten(1).T
        z = z.mT.reshape(7, 16, *[int(z.shape[1] ** 0.5)] * 2)
        z = torch.where(z > 0, z, 0.2 * z)
        z = F.interpolate(z, size=(2 * z.shape[2], 2 * z.shape[3]), mode="bilinear", align_corners=False)
    z = F.interpolate(z, size=(12, 10), mode="bilinear", align_corners=False)
    wanted = standard(torch.einsum("oc,bchw->bohw", paint, z))
    found, labels = virtual_set(5, 7, 3, (2, 12, 10), torch.float64)
    assert labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    torch.testing.assert_close(found, wanted)


def test_virtual_vectors_are_made_by_two_layers() -> None:
    rng = np.random.Generator(np.random.Philox(5))
    z = latents(rng).flatten(1)
    inside, outside = noise(rng, 128, 256), noise(rng, 6, 128)
    wanted = standard(torch.relu(z @ inside.T) @ outside.T).reshape(7, 2, 3)
    torch.testing.assert_close(virtual_set(5, 7, 3, (2, 3), torch.float64)[0], wanted)
