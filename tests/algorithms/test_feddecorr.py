"""FedDecorr: both forms of the penalty by hand and against correlations, and whole rounds."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.algorithms.fedavg import fedavg
from accord.algorithms.feddecorr import Decorrelation, decorrelation, feddecorr
from accord.core.plan import Plan
from accord.errors import ConfigError
from accord.executors.processes import Processes
from support.federation import SIZES, Given, equal_trees, tiny_data, tiny_model, tiny_setup
from support.methods import tiny
from support.reference import Params, gradient, samples

COHORTS = ([0, 2], [1, 3], [0, 1])


def penalty(features: Tensor, form: str) -> Tensor:
    return decorrelation(features, torch.ones(len(features), dtype=features.dtype), form)  # type: ignore[arg-type]


def test_by_hand(float64: None) -> None:
    # Two copies of one feature: standardised with the unbiased deviation, every product is N - 1 = 2.
    same = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    assert float(penalty(same, "official")) == pytest.approx(2**2 / 3, rel=1e-6)
    assert float(penalty(same, "fedbr")) == pytest.approx((2 / 3) ** 2, rel=1e-3)
    # Orthogonal features: no off-diagonal products; on the diagonal 3 of each, one of four over N = 4.
    apart = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert float(penalty(apart, "official")) == pytest.approx(0.0, abs=1e-15)
    assert float(penalty(apart, "fedbr")) == pytest.approx(2 * (3 / 4) ** 2 / 4, rel=1e-3)


def test_two_samples_by_hand(float64: None) -> None:
    """Centred they are -1, 1 and -2, 2, of variance 2 and 8: with the unbiased deviation every product is 1."""
    two = torch.tensor([[0.0, 0.0], [2.0, 4.0]])
    assert float(penalty(two, "official")) == pytest.approx(1 / 2, rel=1e-7)
    first, second = 1 / (2**0.5 + 1e-4), 2 / (8**0.5 + 1e-4)
    products = [first * first, first * second, second * first, second * second]  # 2 z z / N
    assert float(penalty(two, "fedbr")) == pytest.approx(sum(p**2 for p in products) / 4, rel=1e-9)


@given(st.integers(2, 12), st.integers(2, 6), st.integers(0, 2**31))
@example(2, 2, 3396738)  # two nearly equal values of a feature: the 1e-8 beside the variance shows
@settings(max_examples=20, deadline=None)
def test_against_correlations(count: int, dims: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(count, dims))
    variance = values.var(0, ddof=1)
    r = np.corrcoef(values.T) * np.sqrt(np.outer(variance, variance) / np.outer(variance + 1e-8, variance + 1e-8))
    apart = (r[~np.eye(dims, dtype=bool)] ** 2).mean() * (count - 1) ** 2 / count
    assert float(penalty(torch.tensor(values), "official")) == pytest.approx(apart, rel=1e-7, abs=1e-12)
    sd = values.std(0, ddof=1)
    z = (values - values.mean(0)) / (sd + 1e-4)
    assert float(penalty(torch.tensor(values), "fedbr")) == pytest.approx(((z.T @ z / count) ** 2).mean(), rel=1e-9)


@pytest.mark.parametrize("form", ["official", "fedbr"])
def test_padding_dead_features_and_single_samples(form: str, float64: None) -> None:
    values = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    padded = decorrelation(values, weight, form)  # type: ignore[arg-type]
    assert float(padded) == pytest.approx(float(penalty(values[:3], form)), rel=1e-12)

    dead = torch.cat([values, torch.zeros(5, 1)], 1).requires_grad_()
    (slope,) = torch.autograd.grad(penalty(dead, form), dead)
    assert bool(torch.isfinite(slope).all())

    single = values[:1].clone().requires_grad_()
    nothing = penalty(single, form)
    assert float(nothing.detach()) == 0
    assert torch.equal(torch.autograd.grad(nothing, single)[0], torch.zeros(1, 3))
    assert float(penalty(values[:, :1], "official")) == 0  # one dimension has nothing to be correlated with


def loss_of(p: Params, x: Tensor, y: Tensor, beta: float, form: str) -> Tensor:
    """Written from the two formulas."""
    (w1,) = (t for n, t in p.items() if t.dim() == 2 and not n.startswith("head"))
    (b1,) = (t for n, t in p.items() if t.dim() == 1 and not n.startswith("head"))
    z = torch.relu(x.flatten(1) @ w1.T + b1)
    loss = F.cross_entropy(z @ p["head.weight"].T + p["head.bias"], y)
    count, dims = z.shape
    if form == "official":
        s = (z - z.mean(0)) / torch.sqrt(z.var(0) + 1e-8)
        c = s.T @ s
        off = (c**2).sum() - (torch.diagonal(c) ** 2).sum()
        return loss + beta * off / (dims * (dims - 1)) / count
    s = (z - z.mean(0)) / (z.std(0) + 1e-4)
    return loss + beta * ((s.T @ s / count) ** 2).mean()


@pytest.mark.parametrize("form", ["official", "fedbr"])
def test_three_rounds_with_partial_participation(form: str, float64: None) -> None:
    run = tiny(feddecorr, {"beta": 0.3, "form": form}, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = []
        for k in cohort:
            x, y = samples(run, k)
            params = dict(w)
            for rows in run.batches(k, "train", round):
                assert len(rows) == 4  # filled up: the loss compares the samples of a batch
                i = torch.as_tensor(rows)
                grads = gradient(lambda p, i=i, x=x, y=y: loss_of(p, x[i], y[i], 0.3, form), params)
                params = {n: p - 0.1 * grads[n] for n, p in params.items()}
            models.append(params)
        sizes = [SIZES[k] for k in cohort]
        w = {n: sum(a / sum(sizes) * m[n] for a, m in zip(sizes, models, strict=True)) for n in w}
    run.rounds(3)
    assert all(torch.allclose(run.state["model"][n], w[n], rtol=1e-8, atol=1e-9) for n in w)


def test_beta_zero_is_fedavg_bit_for_bit() -> None:
    ours, plain = tiny(feddecorr, {"beta": 0.0}).rounds(2), tiny(fedavg).rounds(2)
    assert equal_trees(ours.state, plain.state)


def test_it_decorrelates() -> None:
    def mean_correlation(factory: Any, options: dict[str, Any]) -> float:
        run = tiny(factory, options, plan=Plan(epochs=5, batch_size=6)).rounds(8)
        features = run.model.reference(run.state["model"], {}, run.data.train_pool.x).features
        return float(penalty(features[:, features.std(0) > 0], "fedbr"))

    assert mean_correlation(feddecorr, {"beta": 1.0}) < mean_correlation(fedavg, {})


def test_processes_give_the_same_bits() -> None:
    many = tiny(feddecorr, executor=partial(Processes, workers=2))
    try:
        assert equal_trees(many.rounds(2).state, tiny(feddecorr).rounds(2).state)
    finally:
        many.close()


def test_bad_settings_are_refused() -> None:
    for beta in (-0.1, float("nan"), "high"):
        with pytest.raises(ConfigError, match="beta"):
            feddecorr(tiny_setup(tiny_data(), tiny_model()), beta=beta)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="official"):
        feddecorr(tiny_setup(tiny_data(), tiny_model()), form="offical")  # type: ignore[arg-type]


def test_batches_are_coupled_where_there_is_a_penalty() -> None:
    assert [Decorrelation(beta).couples for beta in (0.0, 0.1, 1.0)] == [False, True, True]
