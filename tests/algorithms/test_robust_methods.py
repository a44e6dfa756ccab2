"""FedAvg with a robust rule: whole rounds, identities, an attacker among the clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from accord.algorithms.fedavg import fedavg
from accord.algorithms.robust import krum, median, norm_clip, trimmed_mean
from accord.client import Answer, Request
from accord.core.algorithm import Method
from accord.errors import ConfigError
from accord.executors.sequential import Sequential
from support.baselines import close, descend, labels_loss, make, processes_agree
from support.federation import SIZES, Given, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params

Factory = Callable[..., Method]
COHORTS = ([0, 2, 3], [1, 3], [0, 1, 2, 3])


def by_numpy(function: Callable[[np.ndarray], np.ndarray], models: list[Params]) -> Params:
    return {n: torch.tensor(function(np.stack([m[n].numpy() for m in models]))) for n in models[0]}


def expected(name: str, w: Params, models: list[Params], sizes: list[int]) -> Params:
    if name == "median":
        return by_numpy(lambda v: np.median(v, axis=0), models)
    if name == "trimmed_mean":  # 0.34 of 2, 3, 4 answers: 0, 1, 1 cut at either end
        cut = len(models) * 34 // 100
        return by_numpy(lambda v: np.sort(v, axis=0)[cut : len(v) - cut].mean(0), models)
    flat = np.stack([np.concatenate([m[n].numpy().ravel() for n in m]) for m in models])
    if name == "krum":  # hostile 0: the model nearest to its k - 2 nearest others; of two the first
        apart = ((flat[:, None] - flat[None]) ** 2).sum(2)
        return models[int(np.argmin([sum(sorted(row)[1 : len(models) - 1]) for row in apart]))]
    norms = [sum(float(((m[n] - w[n]) ** 2).sum()) for n in w) ** 0.5 for m in models]
    scale = [min(1.0, 0.3 / norm) for norm in norms]
    assert min(scale) < 1, "someone is clipped"
    share = [size / sum(sizes) for size in sizes]
    return {n: w[n] + sum(s * c * (m[n] - w[n]) for s, c, m in zip(share, scale, models, strict=True)) for n in w}


CASES: list[tuple[Factory, dict[str, Any]]] = [
    (median, {}),
    (trimmed_mean, {"trim": 0.34}),
    (krum, {"hostile": 0.0}),
    (norm_clip, {"limit": 0.3}),
]


@pytest.mark.parametrize(("factory", "settings"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_three_rounds(factory: Factory, settings: dict[str, Any], float64: None) -> None:
    run = make(factory, settings, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = [descend(w, run.batches(k, round=round), labels_loss(run, k)) for k in cohort]
        w = expected(factory.__name__, w, models, [SIZES[k] for k in cohort])
    assert close(run.rounds(3).state["model"], w)


@pytest.mark.parametrize(
    ("factory", "settings", "weight"),
    [(trimmed_mean, {"trim": 0.0}, "uniform"), (norm_clip, {"limit": 1e6}, "examples"), (krum, {"keep": 9}, "uniform")],
    ids=["trimmed_mean", "norm_clip", "krum"],
)
def test_identities(factory: Factory, settings: dict[str, Any], weight: str) -> None:
    ours = make(factory, settings, sampler=Given(*COHORTS)).rounds(3)
    assert equal_trees(ours.state, make(fedavg, {"weight": weight}, sampler=Given(*COHORTS)).rounds(3).state)


class Attacked(Sequential):
    """Client 1 sends its weights times -10."""

    def run(self, request: Request) -> list[Answer]:
        found = super().run(request)
        for place, one in enumerate(found):
            if one.client == 1 and one.result is not None:
                evil = {n: -10 * t for n, t in one.result.reply["model"].items()}
                reply = {**one.result.reply, "model": evil}
                found[place] = Answer(1, one.result._replace(reply=reply))
        return found


def test_under_attack() -> None:
    data, model = tiny_data(sizes=(12, 12, 12, 12, 12)), tiny_model(hidden=(12,))

    def accuracy(factory: Factory, settings: dict[str, Any] | None = None, **more: Any) -> float:
        run = make(factory, settings, data=data, model=model, **more).rounds(12)
        predictor = run.algorithm.predictor(run.state)
        assert predictor is not None
        return float((predictor(data.test_pool.x).logits.argmax(1) == data.test_pool.y).double().mean())

    assert accuracy(fedavg) > 0.95
    assert accuracy(fedavg, executor=Attacked) < 0.5
    rules = ((median, {}), (trimmed_mean, {"trim": 0.2}), (krum, {}), (norm_clip, {"limit": 0.5}))
    for factory, settings in rules:  # krum's model is one client's, of twelve samples
        assert accuracy(factory, settings, executor=Attacked) > 0.6


@pytest.mark.parametrize("factory", [median, krum])
def test_processes_agree(factory: Factory) -> None:
    assert processes_agree(factory)


@pytest.mark.parametrize(
    ("factory", "settings"),
    [
        (trimmed_mean, {"trim": 0.5}),
        (trimmed_mean, {"trim": -0.1}),
        (krum, {"hostile": 0.5}),
        (krum, {"keep": -1}),
        (krum, {"keep": 1.5}),
        (norm_clip, {"limit": 0.0}),
        (norm_clip, {"limit": float("nan")}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_bad_settings(factory: Factory, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        factory(tiny_setup(tiny_data(), tiny_model()), **settings)
