"""FedMTL: both regularisers against a reference that keeps the whole matrix W."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from accord.algorithms.fedmtl import fedmtl
from accord.algorithms.local import local
from accord.errors import ConfigError
from support.federation import Given, TinyRun, tiny_data, tiny_model, tiny_setup
from support.personal import COHORTS, FILLED, Params, near, norm_model, same_in_processes, tiny
from support.reference import forward, gradient, samples


def flat(p: Params) -> Tensor:
    return torch.cat([p[n].reshape(-1) for n in sorted(p)])


def matrix_term(columns: list[Tensor], k: int, own: Tensor) -> Tensor:
    """PFLlib's, with the matrix Omega written out."""
    W = torch.stack([own if j == k else c for j, c in enumerate(columns)], 1)
    centring = torch.eye(4) - torch.ones(4, 4) / 4
    omega = (centring @ centring)[0, 0].sqrt()
    assert W.shape[0] == 64 * 5 + 5 + 5 * 3 + 3  # 343: log10 + 1 = 3.53..., so f = 4
    return 1e-4 * (W.norm() ** 2 + ((W * omega).sum(1) ** 2).sum())


def mean_term(columns: list[Tensor], k: int, own: Tensor, mu: float) -> Tensor:
    return mu / 2 * ((own - sum(columns) / 4) ** 2).sum()


def reference(run: TinyRun, term: Any) -> list[Params]:
    models = [dict(run.model.init()[0]) for _ in range(4)]
    for round, cohort in enumerate(COHORTS):
        columns = [flat(m) for m in models]
        new = {}
        for k in cohort:
            x, y = samples(run, k)
            p = dict(models[k])
            for rows in run.batches(k, "train", round):
                g = gradient(
                    lambda q, k=k, x=x[rows], y=y[rows], c=columns: (
                        F.cross_entropy(forward(q, x), y) + term(c, k, flat(q))
                    ),
                    p,
                )
                p = {n: t - 0.1 * g[n] for n, t in p.items()}
            new[k] = p
        for k, p in new.items():
            models[k] = p
    return models


@pytest.mark.parametrize(
    ("options", "term"),
    [
        ({}, matrix_term),
        ({"form": "mean", "mu": 0.3}, partial(mean_term, mu=0.3)),
        ({"form": "mean", "mu": 1.0}, partial(mean_term, mu=1.0)),
    ],
)
def test_three_rounds_with_partial_participation(options: dict[str, Any], term: Any, float64: None) -> None:
    run = tiny(fedmtl, options, sampler=Given(*COHORTS))
    models = reference(run, term)
    run.rounds(3)
    for k in range(4):
        assert near(run.store.get(k)["personal"], models[k])
    assert near(run.state["total"], {n: sum(m[n] for m in models) for n in models[0]})
    assert run.algorithm.predictor(run.state) is None


def test_mu_zero_is_local_training_bit_for_bit() -> None:
    free, alone = tiny(fedmtl, {"form": "mean", "mu": 0.0}).rounds(3), tiny(local).rounds(3)
    for k in range(4):
        mine, theirs = free.store.get(k)["personal"], alone.store.get(k)["personal"]
        assert all(torch.equal(mine[n], theirs[n]) for n in theirs)


def test_a_strong_tie_draws_the_models_together() -> None:
    def spread(mu: float) -> float:
        run = tiny(fedmtl, {"form": "mean", "mu": mu}).rounds(4)
        models = torch.stack([flat(run.store.get(k)["personal"]) for k in range(4)])
        return float(models.var(0).sum())

    assert spread(3.0) < spread(0.0)


def test_personal_accuracy_and_what_travels() -> None:
    run = tiny(fedmtl, with_test=True).rounds(2)
    for k, result in zip(run.replies.ids, run.replies.results, strict=True):
        x, y = samples(run, k)
        right = (forward(run.store.get(k)["personal"], x).argmax(1) == y).sum()
        assert int(result.metrics["personal_correct"]) == int(right)
        assert not result.reply["model"]
        assert set(result.reply) == {"model", "buffers", "change"}


def test_running_statistics_stay_with_the_client() -> None:
    run = tiny(fedmtl, model=norm_model(), plan=FILLED).rounds(2)
    assert any(n.endswith("running_mean") for n in run.store.get(0)["personal"])
    assert all("running" not in n for n in run.state["total"])


def test_processes_give_the_same_bits() -> None:
    assert same_in_processes(fedmtl)


@pytest.mark.parametrize(("settings", "word"), [({"mu": -1.0}, "mu"), ({"form": "cov"}, "form")])
def test_bad_settings_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        fedmtl(tiny_setup(tiny_data(), tiny_model()), **settings)
