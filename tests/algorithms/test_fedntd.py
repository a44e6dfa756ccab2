"""FedNTD: the divergence over the other classes by hand, its properties, and whole rounds."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.algorithms.compose import compose
from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedntd import NotTrueDistillation, fedntd, not_true_divergence
from accord.core.plan import Plan
from accord.core.types import ClientData, Job
from accord.errors import ConfigError
from accord.executors.processes import Processes
from support.federation import SIZES, Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.methods import tiny
from support.reference import Params, forward, gradient, samples

COHORTS = ([0, 2], [1, 3], [0, 1])


def divergence(student: Tensor, teacher: Tensor, y: int, tau: float) -> Tensor:
    """One sample, its true class deleted, written with probabilities."""
    keep = [c for c in range(len(student)) if c != y]
    p, q = F.softmax(teacher[keep] / tau, 0), F.softmax(student[keep] / tau, 0)
    return (p * torch.log(p / q)).sum()


def test_by_hand(float64: None) -> None:
    # Class 0 is the true one. Teacher odds 1 : 3, student 1 : 1 between the others.
    teacher = torch.tensor([[5.0, 0.0, math.log(3.0)]])
    student = torch.tensor([[-7.0, 2.0, 2.0]])
    expected = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert float(not_true_divergence(student, teacher, torch.tensor([0]), 1.0)) == pytest.approx(expected)
    # tau = 2 turns odds of 3 into sqrt 3.
    p = math.sqrt(3) / (1 + math.sqrt(3))
    expected = (1 - p) * math.log(2 * (1 - p)) + p * math.log(2 * p)
    assert float(not_true_divergence(student, teacher, torch.tensor([0]), 2.0)) == pytest.approx(expected)


@given(st.integers(2, 6), st.integers(0, 2**31), st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=20, deadline=None)
def test_properties(classes: int, seed: int, tau: float) -> None:
    maker = torch.Generator().manual_seed(seed)
    student, teacher = torch.randn(2, 4, classes, generator=maker, dtype=torch.float64)
    y = torch.randint(classes, (4,), generator=maker)
    apart = not_true_divergence(student, teacher, y, tau)
    assert bool((apart >= -1e-12).all())
    if classes == 2:  # one other class: nothing to disagree about
        assert float(apart.abs().max()) < 1e-12
    for i in range(4):
        assert float(apart[i]) == pytest.approx(float(divergence(student[i], teacher[i], int(y[i]), tau)), abs=1e-10)
    moved = student.clone()
    moved[torch.arange(4), y] += 9.0  # the true class is not looked at
    assert torch.allclose(not_true_divergence(moved, teacher, y, tau), apart)
    assert float(not_true_divergence(teacher + 3.0, teacher, y, tau).abs().max()) < 1e-12
    assert torch.allclose(not_true_divergence(student, teacher, F.one_hot(y, classes).double(), tau), apart)


def test_soft_labels_mix_the_divergences(float64: None) -> None:
    maker = torch.Generator().manual_seed(3)
    student, teacher = torch.randn(2, 3, 4, generator=maker)
    first, second = torch.tensor([0, 1, 2]), torch.tensor([3, 1, 0])
    soft = 0.3 * F.one_hot(first, 4) + 0.7 * F.one_hot(second, 4)
    expected = 0.3 * not_true_divergence(student, teacher, first, 1.5) + 0.7 * not_true_divergence(
        student, teacher, second, 1.5
    )
    assert torch.allclose(not_true_divergence(student, teacher, soft, 1.5), expected)


def reference_models(run: TinyRun, w: Params, round: int, cohort: list[int], beta: float, tau: float) -> list[Params]:
    models = []
    for k in cohort:
        x, y = samples(run, k)
        params = dict(w)
        for rows in run.batches(k, "train", round):
            index = torch.as_tensor(rows)

            def loss(p: Params, i: Tensor = index, x: Tensor = x, y: Tensor = y) -> Tensor:
                student, teacher = forward(p, x[i]), forward(w, x[i])
                kept = sum(divergence(a, b, int(c), tau) for a, b, c in zip(student, teacher, y[i], strict=True))
                return F.cross_entropy(student, y[i]) + beta * tau**2 * kept / len(i)

            grads = gradient(loss, params)
            params = {n: p - 0.1 * grads[n] for n, p in params.items()}
        models.append(params)
    return models


def test_three_rounds_with_partial_participation(float64: None) -> None:
    run = tiny(fedntd, {"beta": 0.7, "tau": 2.0}, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = reference_models(run, w, round, cohort, 0.7, 2.0)
        sizes = [SIZES[k] for k in cohort]
        w = {n: sum(a / sum(sizes) * m[n] for a, m in zip(sizes, models, strict=True)) for n in w}
    run.rounds(3)
    assert all(torch.allclose(run.state["model"][n], w[n], rtol=1e-9, atol=1e-10) for n in w)


def test_with_mixup_the_teacher_sees_the_mixed_samples(float64: None) -> None:
    run = tiny(compose, {"parts": ("fedntd: beta=0.5", "mixup: alpha=0.6")}, sampler=Given([1]))
    w = dict(run.state["model"])
    x, y = samples(run, 1)
    batches = run.batches(1, "train", 0)
    rng = run.key.client(1).at("noise.train", 0)
    shares, keys = rng.beta(0.6, 0.6, len(batches)), rng.random((len(batches), 4))
    params = dict(w)
    for share, key, rows in zip(shares, keys, batches, strict=True):
        a = torch.as_tensor(rows)
        b = a[key[: len(rows)].argsort()]

        def loss(p: Params, a: Tensor = a, b: Tensor = b, lam: float = share) -> Tensor:
            mixed = lam * x[a] + (1 - lam) * x[b]
            student, teacher = forward(p, mixed), forward(w, mixed)
            total = lam * F.cross_entropy(student, y[a]) + (1 - lam) * F.cross_entropy(student, y[b])
            for i in range(len(a)):
                first = divergence(student[i], teacher[i], int(y[a[i]]), 1.0)
                second = divergence(student[i], teacher[i], int(y[b[i]]), 1.0)
                total = total + 0.5 * (lam * first + (1 - lam) * second) / len(a)
            return total

        grads = gradient(loss, params)
        params = {n: p - 0.1 * grads[n] for n, p in params.items()}
    run.rounds(1)
    assert all(torch.allclose(run.state["model"][n], params[n], rtol=1e-9, atol=1e-10) for n in w)


def test_few_steps_do_not_run_the_teacher_on_everything(float64: None) -> None:
    plan = Plan(steps=2, batch_size=4)  # 8 samples: fewer than client 3 holds, more than client 0 does
    run = tiny(fedntd, plan=plan, sampler=Given([0, 3]))
    for client, stored in ((0, {"logits"}), (3, set())):
        x, y = samples(run, client)
        job = Job(run.algorithm.message(run.state), {}, {}, {}, ClientData(x, y, x[:0], y[:0], 3))
        assert set(NotTrueDistillation(1.0, 1.0, 8).begin(run.model, job)) == stored
    w = dict(run.state["model"])
    models = reference_models(run, w, 0, [0, 3], 1.0, 1.0)
    run.rounds(1)
    for n in w:
        expected = (SIZES[0] * models[0][n] + SIZES[3] * models[1][n]) / (SIZES[0] + SIZES[3])
        assert torch.allclose(run.state["model"][n], expected, rtol=1e-9, atol=1e-10)


def test_beta_zero_is_fedavg_bit_for_bit() -> None:
    assert equal_trees(tiny(fedntd, {"beta": 0.0}).rounds(2).state, tiny(fedavg).rounds(2).state)


def test_processes_give_the_same_bits() -> None:
    many = tiny(fedntd, executor=partial(Processes, workers=2))
    try:
        assert equal_trees(many.rounds(2).state, tiny(fedntd).rounds(2).state)
    finally:
        many.close()


def test_bad_settings_are_refused() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    with pytest.raises(ConfigError, match="beta"):
        fedntd(setup, beta=-1.0)
    for tau in (0.0, -2.0, float("inf")):
        with pytest.raises(ConfigError, match="tau"):
            fedntd(setup, tau=tau)


def test_the_teacher_is_asked_once_unless_few_of_its_answers_will_be_read() -> None:
    model = tiny_model()
    params, buffers = model.init()
    x = torch.rand(5, 1, 8, 8)
    data = ClientData(x, torch.zeros(5, dtype=torch.long), x[:0], torch.zeros(0, dtype=torch.long), 3)
    job = Job({"model": params, "buffers": buffers}, {}, {}, {}, data)
    said = model.reference(params, buffers, x).logits
    for reach, stored in ((0, True), (1, False), (4, False), (5, True), (6, True)):
        found = NotTrueDistillation(reach=reach).begin(model, job)
        assert set(found) == ({"logits"} if stored else set())
        assert not stored or torch.allclose(found["logits"], said)
    assert NotTrueDistillation(beta=0.0).begin(model, job) == {}
