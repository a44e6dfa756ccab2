"""Which metrics go with which problem, and what they are there; expected values from scikit-learn and by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import accord
from accord.data.federated import FederatedData, Pool
from accord.errors import ConfigError
from accord.measures import MEASURES
from support.wards import SITES, divided, run

metrics = pytest.importorskip("sklearn.metrics")


def value(name: str, outputs: Any, labels: Any) -> float:
    return float(MEASURES[name].function(torch.as_tensor(outputs), torch.as_tensor(labels)))  # type: ignore[attr-defined]


def numbers(columns: int = 1) -> FederatedData:
    """Labels whose mean differs from site to site; Turin's test labels are all alike."""
    rng = np.random.default_rng(8)
    x, seen = rng.normal(size=(48, 3)), rng.normal(size=(36, 3))
    slopes = np.array([[1.0, 0.5], [-2.0, 1.0], [0.5, 0.0]])[:, :columns]
    y, held = x @ slopes + rng.normal(size=(48, columns)), seen @ slopes + rng.normal(size=(36, columns))
    y[20:40] += 5
    held[30:] = 1.5
    labels = (t.astype(np.float32).squeeze(1) if columns == 1 else t.astype(np.float32) for t in (y, held))
    return divided(x, next(labels), seen, next(labels), columns, problem="regression")


def labels_of_several() -> FederatedData:
    rng = np.random.default_rng(9)
    y, held = rng.integers(0, 2, (48, 3)), rng.integers(0, 2, (36, 3))
    y[:, 2] = rng.random(48) < 0.9
    held[30:, 1] = 0
    return divided(y + rng.normal(size=y.shape), y, held + rng.normal(size=held.shape), held, 3, problem="multilabel")


class TestByHand:
    def test_errors_of_numbers(self) -> None:
        outputs, labels = torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([1.0, 4.0, 4.0])
        assert value("mae", outputs, labels) == pytest.approx((0 + 2 + 2) / 3)
        # squared errors 0, 4, 4; the labels' mean is 3, their squared distances 4, 1, 1
        assert value("r2", outputs, labels) == pytest.approx(1 - 8 / 6)

    def test_r2_does_not_depend_on_the_unit(self) -> None:
        for unit in (1e-4, 1.0, 1e4):
            outputs, labels = [[0.0], [3 * unit], [2 * unit]], [unit, 2 * unit, 3 * unit]
            assert value("r2", outputs, labels) == pytest.approx(1 - 3 / 2)

    def test_r2_needs_labels_that_differ(self) -> None:
        assert math.isnan(value("r2", [[1.0]], [2.0]))
        assert math.isnan(value("r2", [[1.0], [2.0]], [3.0, 3.0]))
        # the second number is the same in all samples: of the first alone
        assert value("r2", [[1.0, 0.0], [2.0, 0.0]], [[1.0, 5.0], [3.0, 5.0]]) == pytest.approx(1 - 1 / 2)

    def test_perplexity_counts_every_labelled_position_once(self) -> None:
        # three labelled positions of probabilities 1/2, 1/4 and 1/8: (2 * 4 * 8) ** (1 / 3)
        chances = torch.tensor([[[0.5, 0.5], [0.9, 0.1]], [[0.25, 0.75], [0.125, 0.875]]]).log()
        assert value("perplexity", chances, torch.tensor([[0, -100], [0, 0]])) == pytest.approx(4.0)
        assert math.isnan(value("perplexity", [[[1000.0, 0.0]]], torch.tensor([[1]]))), "beyond all numbers"


@pytest.mark.parametrize("columns", [1, 2])
def test_a_regression_has_its_own_unasked(columns: int, tmp_path: Path) -> None:
    data = numbers(columns)
    outcome = run(tmp_path, "local.lr=0.05", data=data)
    assert outcome.model is not None
    with torch.no_grad():
        predicted = outcome.model(data.test_pool.x).numpy().reshape(36, columns)
    y, summary = data.test_pool.y.numpy().reshape(36, columns), outcome.summary
    assert summary["rmse"] == pytest.approx(math.sqrt(metrics.mean_squared_error(y, predicted)), rel=1e-5)
    assert summary["mae"] == pytest.approx(metrics.mean_absolute_error(y, predicted), rel=1e-5)
    assert summary["r2"] == pytest.approx(metrics.r2_score(y, predicted), rel=1e-4)
    rows = outcome.sites()
    assert [row["site"] for row in rows] == list(SITES)
    each = [metrics.mean_absolute_error(y[data.test[k]], predicted[data.test[k]]) for k in range(4)]
    assert [row["mae"] for row in rows] == [pytest.approx(e, rel=1e-5) for e in each]
    assert summary["client_mae"]["worst"] == pytest.approx(max(each), rel=1e-5)
    assert (rows[3]["r2"], summary["client_r2"]["undefined"]) == (None, 1)
    rmse = [math.sqrt(metrics.mean_squared_error(y[data.test[k]], predicted[data.test[k]])) for k in range(4)]
    assert [row["rmse"] for row in rows] == [pytest.approx(e, rel=1e-5) for e in rmse]
    means = [data.train_pool.y.numpy()[data.train[k]].mean() for k in range(4)]
    assert [row["label_mean"] for row in rows] == [pytest.approx(m, rel=1e-5) for m in means]


def test_several_labels_per_sample(tmp_path: Path) -> None:
    data = labels_of_several()
    names = ("auroc", "average_precision", "macro_f1", "micro_f1")
    outcome = run(tmp_path, *(f"evaluate.{name}=true" for name in names), data=data)
    assert outcome.model is not None
    with torch.no_grad():
        logits = outcome.model(data.test_pool.x).double().numpy()
    y = data.test_pool.y.numpy()
    assert outcome.summary["auroc"] == pytest.approx(metrics.roc_auc_score(y, logits))
    assert outcome.summary["average_precision"] == pytest.approx(metrics.average_precision_score(y, logits))
    for name, average in (("macro_f1", "macro"), ("micro_f1", "micro")):
        assert outcome.summary[name] == pytest.approx(metrics.f1_score(y, logits > 0, average=average))
    here, rows = data.test[3], outcome.sites()
    assert rows[3]["auroc"] == pytest.approx(metrics.roc_auc_score(y[here][:, [0, 2]], logits[here][:, [0, 2]]))
    shares = (data.train_pool.y.numpy()[data.train[2]] > 0).mean(axis=0)
    assert (rows[2]["class"], rows[2]["class_share"]) == (str(shares.argmax()), pytest.approx(shares.max()))


class Texts(nn.Module):
    """A class for every position, from it alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


def texts() -> FederatedData:
    """The next token is the one after this one, or any; samples have different lengths."""
    rng = np.random.default_rng(4)
    pools = []
    for count in (48, 36):
        x = rng.integers(0, 5, (count, 6))
        y = np.where(rng.random(x.shape) < 0.7, (x + 1) % 5, rng.integers(0, 5, x.shape))
        y[np.arange(6) >= rng.integers(1, 7, count)[:, None]] = -100
        pools.append((torch.tensor(x), torch.tensor(y)))
    data = divided(np.zeros((48, 3)), pools[0][1], np.zeros((36, 3)), pools[1][1], 5, problem="tokens")
    return replace(data, train_pool=Pool(*pools[0]), test_pool=Pool(*pools[1]))


def test_texts_have_their_perplexity_unasked(tmp_path: Path) -> None:
    data = texts()
    outcome = run(tmp_path, data=data, model=accord.adapt(Texts(), head="head"))
    assert outcome.model is not None
    with torch.no_grad():
        chances = outcome.model(data.test_pool.x).double().log_softmax(-1)
    y = data.test_pool.y

    def expected(rows: Any) -> float:
        said = [chances[i, j, y[i, j]].item() for i in rows for j in range(6) if y[i, j] != -100]
        return math.exp(-sum(said) / len(said))

    assert outcome.summary["perplexity"] == pytest.approx(expected(range(36)), rel=1e-5)
    by_samples = math.exp(outcome.metrics[-1]["test_loss"])
    assert abs(by_samples - outcome.summary["perplexity"]) > 3e-4, "positions count, not samples"
    each = [expected(data.test[k].tolist()) for k in range(4)]
    rows = outcome.sites()
    assert [row["perplexity"] for row in rows] == [pytest.approx(e, rel=1e-5) for e in each]
    assert outcome.summary["client_perplexity"]["worst"] == pytest.approx(max(each), rel=1e-5)
    assert {row["class"] for row in rows} == {""}


@pytest.mark.parametrize(
    ("name", "data", "there"),
    [
        ("auroc", numbers, r"regression there are: rmse \(always\), mae, r2$"),
        ("mae", labels_of_several, "auroc, average_precision, macro_f1, micro_f1"),
        ("ece", numbers, "only for classification"),
        ("perplexity", numbers, "only for tokens"),
    ],
)
def test_what_is_not_defined_is_refused_with_what_is(name: str, data: Any, there: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"evaluate\.{name} is not defined for .*{there}"):
        run(tmp_path, f"evaluate.{name}=true", data=data())
    assert not list(tmp_path.iterdir())
