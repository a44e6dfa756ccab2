"""FedDyn against the paper's Algorithm 1 written out, in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.algorithms.feddyn import DynamicRegulariser, feddyn
from accord.core.keys import Key
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.core.types import Replies, Result, World
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, labels_loss, make, mean, processes_agree
from support.federation import Given, TinyRun, tiny_data, tiny_model, tiny_setup
from support.reference import Params, forward

ALPHA = 0.3


def reference(run: TinyRun, rounds: int) -> tuple[Params, Params, dict[int, Params], Params]:
    """w, h, all g_k and the last round's plain average."""
    w = dict(run.state["model"])
    zero = {n: torch.zeros_like(p) for n, p in w.items()}
    h, own, average = dict(zero), {k: dict(zero) for k in range(4)}, w
    for round, cohort in enumerate(COHORTS[:rounds]):
        models = []
        for k in cohort:
            labels = labels_loss(run, k)

            def loss(p: Params, index: Tensor, k: int = k, w: Params = w, labels: object = labels) -> Tensor:
                linear = sum((own[k][n] * p[n]).sum() for n in p)
                pull = sum(((p[n] - w[n]) ** 2).sum() for n in p)
                return labels(p, index) - linear + ALPHA / 2 * pull  # type: ignore[operator]

            trained = descend(w, run.batches(k, round=round), loss, momentum=0.5)
            own[k] = {n: own[k][n] - ALPHA * (trained[n] - w[n]) for n in w}
            models.append(trained)
        h = {n: h[n] - ALPHA / 4 * sum(m[n] - w[n] for m in models) for n in w}
        average = mean(models)
        w = {n: average[n] - h[n] / ALPHA for n in w}
    return w, h, own, average


def test_three_rounds(float64: None) -> None:
    run = make(feddyn, {"alpha": ALPHA}, sampler=Given(*COHORTS), optimizer=SGD(0.5))
    w, h, own, _ = reference(run, 3)
    run.rounds(3)
    assert close(run.state["model"], w)
    assert close(run.state["correction"], h)
    for k in range(4):
        assert close((run.store.get(k) or {})["correction"], own[k])
    for name in h:  # the mean of the clients' gradient estimates is the server's
        total = sum((run.store.get(k) or {})["correction"][name] for k in range(4))
        assert torch.allclose(total / 4, run.state["correction"][name], atol=1e-12)


@pytest.mark.parametrize("report", ["server", "average"])
def test_what_is_scored(report: str, float64: None) -> None:
    run = make(feddyn, {"alpha": ALPHA, "report": report}, sampler=Given(*COHORTS), optimizer=SGD(0.5))
    w, _, _, average = reference(run, 2)
    run.rounds(2)
    predictor = run.algorithm.predictor(run.state)
    assert predictor is not None
    x = run.data.test_pool.x
    assert torch.allclose(predictor(x).logits, forward(average if report == "average" else w, x), atol=1e-9)
    exported = run.algorithm.export(run.state)
    assert exported is not None
    assert torch.allclose(exported(x), forward(average if report == "average" else w, x), atol=1e-9)
    assert close(run.algorithm.message(run.state)["model"], w), "clients start from the corrected model either way"


def test_one_step_by_hand(float64: None) -> None:
    """First visit, one step: the regulariser's gradient is 0 at w_t and g_k = 0, so w_k = w_t - lr g.

    Then h = -(alpha/4) sum (w_k - w_t), and w = mean - h / alpha = w_t + (1 + m/4) mean change.
    """
    run = make(feddyn, {"alpha": ALPHA}, sampler=Given([0, 2]), plan=Plan(steps=1, batch_size=3))
    w = dict(run.state["model"])
    models = [descend(w, run.batches(k), labels_loss(run, k)) for k in (0, 2)]
    expected = {n: w[n] + 1.5 * (mean(models)[n] - w[n]) for n in w}
    assert close(run.rounds(1).state["model"], expected)


def test_only_the_model_travels() -> None:
    run = make(feddyn, {"alpha": ALPHA}).rounds(1)
    assert run.replies is not None
    assert set(run.algorithm.message(run.state)) == {"model", "buffers"}
    assert all(set(result.reply) == {"model", "buffers"} for result in run.replies.results)


def test_processes_agree() -> None:
    assert processes_agree(feddyn, {"alpha": ALPHA})


@pytest.mark.parametrize("alpha", [0.0, -0.1, float("inf")])
def test_bad_settings(alpha: float) -> None:
    with pytest.raises(ConfigError, match="alpha"):
        feddyn(tiny_setup(tiny_data(), tiny_model()), alpha=alpha)


def test_an_unknown_report() -> None:
    with pytest.raises(ConfigError, match="report"):
        feddyn(tiny_setup(tiny_data(), tiny_model()), report="mean")  # type: ignore[arg-type]


def test_the_servers_step_by_hand() -> None:
    """K = 4 clients, of whom two are there: alpha 1/2, w = 1 and h = 2; they send 3 and 5, whatever their samples.

    h <- 2 - 1/2 * 2/4 * (4 - 1) = 1.25 and w <- 4 - 1.25 / (1/2).
    """
    results = tuple(Result({"model": {"w": torch.tensor([v])}}, {}, {}) for v in (3.0, 5.0))
    replies = Replies((0, 2), results, torch.tensor([1, 9]), {})
    state = {"model": {"w": torch.tensor([1.0])}, "correction": {"w": torch.tensor([2.0])}}
    new = DynamicRegulariser(0.5, 4).update(state, replies, World(0, [0, 2], np.ones(4), Key(0)))
    assert (new["correction"]["w"].tolist(), new["model"]["w"].tolist()) == ([1.25], [1.5])
