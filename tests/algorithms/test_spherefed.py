"""SphereFed: the squared error by hand, whole rounds, and the calibration against numpy's least squares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from accord.algorithms.spherefed import spherefed
from accord.core.optim import SGD
from accord.engine.exchange import LocalExchange
from accord.errors import ConfigError
from accord.parts.heads import orthonormal_rows
from support.federation import Given, TinyRun, tiny_data, tiny_model, tiny_setup
from support.personal import COHORTS, Params, by_samples, near, same_in_processes, tiny
from support.reference import gradient, samples


def unit(p: Params, x: Tensor) -> Tensor:
    (weight,) = (t for n, t in p.items() if t.dim() == 2 and n != "head.weight")
    (bias,) = (t for n, t in p.items() if t.dim() == 1)
    z = torch.relu(x.flatten(1) @ weight.T + bias)
    return z / z.norm(dim=1, keepdim=True).clamp(min=1e-4)


def squared_error(p: Params, x: Tensor, y: Tensor) -> Tensor:
    total = 0.0
    for row, label in zip(unit(p, x) @ p["head.weight"].T, y, strict=True):
        wanted = torch.zeros(3)
        wanted[label] = 1
        total = total + ((row - wanted) ** 2).sum() / 3
    return total / len(y)


def reference_rounds(run: TinyRun, momentum: float = 0.0) -> Params:
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = []
        for k in cohort:
            x, y = samples(run, k)
            p, velocity = dict(w), {n: torch.zeros_like(t) for n, t in w.items()}
            for rows in run.batches(k, "train", round):
                g = gradient(lambda q, xb=x[rows], yb=y[rows]: squared_error(q, xb, yb), p)
                velocity = {n: momentum * velocity[n] + g[n] for n in p}
                p = {n: t if n == "head.weight" else t - 0.1 * velocity[n] for n, t in p.items()}
            models.append(p)
        w = by_samples(models, cohort)
    return w


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_three_rounds_with_partial_participation(momentum: float, float64: None) -> None:
    run = tiny(spherefed, sampler=Given(*COHORTS), optimizer=SGD(momentum))
    w = reference_rounds(run, momentum)
    assert near(run.rounds(3).state["model"], w)


def test_the_head_is_orthonormal_and_never_moves() -> None:
    run = tiny(spherefed, {"calibrate": "always"}, optimizer=SGD(0.9, weight_decay=0.1))
    head = run.state["model"]["head.weight"].clone()
    assert torch.allclose(head @ head.T, torch.eye(3), atol=1e-6)
    run.rounds(3)
    assert torch.equal(run.state["model"]["head.weight"], head)
    assert "head.bias" not in run.state["model"]


def test_calibration_is_ridge_regression_over_everyones_samples(float64: None) -> None:
    run = tiny(spherefed, {"ridge": 0.2}, sampler=Given(*COHORTS)).rounds(3)
    z = unit(run.state["model"], run.data.train_pool.x).numpy()
    y = np.eye(3)[run.data.train_pool.y.numpy()]
    # (Z^T Z + r I)^-1 Z^T Y as an ordinary least-squares problem with sqrt(r) rows appended.
    rows = np.concatenate([z, np.sqrt(0.2) * np.eye(z.shape[1])])
    wanted = np.linalg.lstsq(rows, np.concatenate([y, np.zeros((z.shape[1], 3))]), rcond=None)[0]
    assert np.allclose(run.state["calibrated"]["head.weight"].numpy(), wanted.T, atol=1e-9)
    logits = run.algorithm.predictor(run.state)(run.data.test_pool.x).logits
    assert np.allclose(logits.numpy(), z @ wanted, atol=1e-9)  # test and train pool are the same samples


def test_when_it_is_calibrated() -> None:
    end = tiny(spherefed, rounds=3).rounds(2)
    assert "calibrated" not in end.state
    plain = end.algorithm.predictor(end.state)(end.data.test_pool.x).logits
    expected = unit(end.state["model"], end.data.test_pool.x) @ end.state["model"]["head.weight"].T
    assert torch.allclose(plain, expected, atol=1e-6)
    assert "calibrated" in end.rounds(1).state
    assert "calibrated" in tiny(spherefed, {"calibrate": "always"}).rounds(1).state
    never = tiny(spherefed, {"calibrate": "never"}).rounds(3)
    assert "calibrated" not in never.state
    assert "moments" not in never.algorithm.tasks


def test_calibration_fits_the_training_samples_no_worse(float64: None) -> None:
    run = tiny(spherefed, {"ridge": 1e-9}).rounds(3)
    z, y = unit(run.state["model"], run.data.train_pool.x), torch.eye(3)[run.data.train_pool.y]
    error = [float((z @ run.state[tree]["head.weight"].T - y).square().sum()) for tree in ("calibrated", "model")]
    assert error[0] <= error[1]


def test_clients_without_samples_are_not_asked() -> None:
    data, model = tiny_data(sizes=(6, 0, 9)), tiny_model()
    setup = tiny_setup(data, model, sampler=Given([0, 2]), rounds=1)
    assert "calibrated" in TinyRun(spherefed(setup), data=data, model=model).rounds(1).state


def test_clients_with_one_sample_are_asked_for_their_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = tiny_data(sizes=(6, 0, 1)), tiny_model()
    setup = tiny_setup(data, model, sampler=Given([0]), rounds=1)
    run = TinyRun(spherefed(setup), data=data, model=model)
    asked: list[tuple[str, list[int]]] = []
    ask = LocalExchange.__call__

    def noted(self: Any, task: str, clients: Any, *rest: Any) -> Any:
        asked.append((task, list(clients)))
        return ask(self, task, clients, *rest)

    monkeypatch.setattr(LocalExchange, "__call__", noted)
    run.rounds(1)
    assert ("moments", [0, 2]) in asked


def test_processes_give_the_same_bits() -> None:
    assert same_in_processes(spherefed, {"calibrate": "always"})


@pytest.mark.parametrize(
    ("settings", "word"), [({"ridge": 0.0}, "ridge"), ({"ridge": float("inf")}, "ridge"), ({"calibrate": "x"}, "cali")]
)
def test_bad_settings_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        spherefed(tiny_setup(tiny_data(), tiny_model()), **settings)


def test_fewer_features_than_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="features"):
        spherefed(tiny_setup(tiny_data(), tiny_model(hidden=(2,))))


def test_orthonormal_rows_at_any_scale() -> None:
    """Dependent rows are refused and others are not, however large or small the weights are."""
    good = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    bad = good.clone()
    bad[2] = 0.3 * good[0] - 2 * good[1]
    for scale in (1e-8, 1.0, 1e8):
        rows = orthonormal_rows(scale * good)
        torch.testing.assert_close(rows @ rows.mT, torch.eye(3, dtype=torch.float64))
        torch.testing.assert_close(rows[0], good[0] / good[0].norm())
        with pytest.raises(ConfigError, match="linearly dependent"):
            orthonormal_rows(scale * bad)


def test_the_model_that_is_given_back_has_the_calibrated_head() -> None:
    run = tiny(spherefed, rounds=1).rounds(1)
    module, predictor = run.algorithm.export(run.state), run.algorithm.predictor(run.state)
    assert module is not None
    assert predictor is not None
    x = run.data.test_pool.x
    wanted = unit(run.state["model"], x) @ run.state["calibrated"]["head.weight"].T
    assert torch.allclose(module(x), wanted, atol=1e-6)
    assert torch.allclose(predictor(x).logits, wanted, atol=1e-6)
    assert run.state["calibrated"]["head.weight"].dtype == torch.float32
