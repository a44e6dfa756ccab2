"""Mixup: the mixed batch, the two-term loss it stands for, and whole rounds against a plain reference."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.algorithms.fedavg import fedavg
from accord.algorithms.mixup import Mixup, mixup
from accord.core.types import Batch, ClientData, Job
from accord.errors import ConfigError, DataError
from accord.executors.processes import Processes
from support.federation import SIZES, Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params, forward, gradient, samples

COHORTS = ([0, 2], [1, 3], [0, 1])


def tiny(factory: Any, **setup: Any) -> TinyRun:
    data, model = tiny_data(dtype=torch.get_default_dtype()), tiny_model()
    options = setup.pop("options", {})
    kinds = {k: setup.pop(k) for k in ("executor", "seed") if k in setup}
    built = factory(tiny_setup(data, model, **setup), **options)
    return TinyRun(built, data=data, model=model, **kinds, **setup)


def job_of(x: Tensor, y: Tensor, classes: int) -> Job:
    return Job({}, {}, {}, {}, ClientData(x, y, x[:0], y[:0], classes))


def batch_of(x: Tensor, y: Tensor, share: float, keys: list[float], weight: Tensor | None = None) -> Batch:
    noise = {"mixup.share": torch.tensor(share), "mixup.order": torch.tensor(keys)}
    return Batch(x, y, torch.ones(len(x)) if weight is None else weight, torch.arange(len(x)), noise)


def test_a_batch_by_hand() -> None:
    x, y = torch.tensor([[0.0, 4.0], [8.0, 0.0]]), torch.tensor([2, 0])
    mixed = Mixup().batch(job_of(x, y, 3), {}, batch_of(x, y, 0.25, [0.9, 0.1]))  # sorted: 1, 0: swapped
    assert torch.equal(mixed.x, torch.tensor([[6.0, 1.0], [2.0, 3.0]]))
    assert torch.equal(mixed.y, torch.tensor([[0.75, 0.0, 0.25], [0.25, 0.0, 0.75]]))
    assert len(mixed.index) == 0


def test_padding_changes_nothing() -> None:
    x, y = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 1, 0])
    keys = [0.3, 0.9, 0.1, 0.5, 0.2]
    short = Mixup().batch(job_of(x, y, 3), {}, batch_of(x[:3], y[:3], 0.3, keys))
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    padded = Mixup().batch(job_of(x, y, 3), {}, batch_of(x, y, 0.3, keys, weight))
    assert torch.equal(padded.x[:3], short.x)
    assert torch.equal(padded.y[:3], short.y)


@given(st.integers(1, 9), st.integers(0, 2**31), st.floats(0, 1, width=32))
@settings(max_examples=25, deadline=None)
def test_every_sample_is_used_once_and_labels_are_shares(count: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    x, y = torch.tensor(rng.normal(size=(count, 3)), dtype=torch.float32), torch.tensor(rng.integers(4, size=count))
    keys = rng.random(9).tolist()
    mixed = Mixup().batch(job_of(x, y, 4), {}, batch_of(x, y, share, keys))
    assert torch.allclose(mixed.x.sum(0), x.sum(0), atol=1e-4)  # a permutation on both sides
    assert torch.allclose(mixed.y.sum(1), torch.ones(count))
    assert bool((mixed.y >= 0).all())


def test_shares_are_beta_and_permutations_uniform() -> None:
    draws = Mixup(0.2).noise(np.random.default_rng(0), 20000, 3)
    share = draws["mixup.share"]
    assert abs(share.mean() - 0.5) < 0.01
    assert abs(share.var() - 1 / (4 * (2 * 0.2 + 1))) < 0.005  # of Beta(a, a)
    orders = [tuple(order) for order in draws["mixup.order"].argsort(1)]
    counts = [orders.count(order) for order in sorted(set(orders))]
    assert len(counts) == 6
    assert max(counts) - min(counts) < 350


def two_terms(pair: tuple[Tensor, ...], lam: float, p: Params) -> Tensor:
    xa, ya, xb, yb = pair
    logits = forward(p, lam * xa + (1 - lam) * xb)
    return lam * F.cross_entropy(logits, ya) + (1 - lam) * F.cross_entropy(logits, yb)


def reference_round(run: TinyRun, w: Params, round: int, cohort: list[int], alpha: float) -> list[Params]:
    """lam CE(y_i) + (1 - lam) CE(y_j), two terms, from the draws the run makes for this address."""
    models = []
    for k in cohort:
        x, y = samples(run, k)
        batches = run.batches(k, "train", round)
        rng = run.key.client(k).at("noise.train", round)
        shares = rng.beta(alpha, alpha, len(batches))
        keys = rng.random((len(batches), max(map(len, batches))))
        params = dict(w)
        for share, key, rows in zip(shares, keys, batches, strict=True):
            first = torch.as_tensor(rows)
            second = first[np.argsort(key[: len(rows)])]
            pair = (x[first], y[first], x[second], y[second])
            grads = gradient(partial(two_terms, pair, share), params)
            params = {n: p - 0.1 * grads[n] for n, p in params.items()}
        models.append(params)
    return models


@pytest.mark.parametrize("weight", ["examples", "uniform"])
def test_three_rounds_with_partial_participation(weight: str, float64: None) -> None:
    run = tiny(mixup, options={"alpha": 0.6, "weight": weight}, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = reference_round(run, w, round, cohort, 0.6)
        sizes = [SIZES[k] if weight == "examples" else 1 for k in cohort]
        w = {n: sum(a / sum(sizes) * m[n] for a, m in zip(sizes, models, strict=True)) for n in w}
    run.rounds(3)
    assert all(torch.allclose(run.state["model"][n], w[n], rtol=1e-9, atol=1e-10) for n in w)


def test_alpha_zero_is_fedavg_bit_for_bit() -> None:
    mixed, plain = tiny(mixup, options={"alpha": 0.0}).rounds(2), tiny(fedavg).rounds(2)
    assert equal_trees(mixed.state, plain.state)


def test_processes_give_the_same_bits() -> None:
    one = tiny(mixup).rounds(2)
    many = tiny(mixup, executor=partial(Processes, workers=2))
    try:
        assert equal_trees(many.rounds(2).state, one.state)
    finally:
        many.close()


@pytest.mark.parametrize("alpha", [-0.1, float("nan"), float("inf"), "0.2", True])
def test_bad_alpha_is_refused(alpha: Any) -> None:
    with pytest.raises(ConfigError, match="alpha"):
        mixup(tiny_setup(tiny_data(), tiny_model()), alpha=alpha)


def test_inputs_that_cannot_be_mixed_are_refused() -> None:
    tokens = torch.tensor([[1, 2], [3, 4]])
    with pytest.raises(DataError, match="real numbers"):
        Mixup().begin(tiny_model(), job_of(tokens, torch.tensor([0, 1]), 2))
    assert Mixup(0.0).begin(tiny_model(), job_of(tokens, torch.tensor([0, 1]), 2)) == {}, "nothing is mixed"
