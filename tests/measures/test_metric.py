"""A user's own metric: a function of predictions and labels, in a run, in its records and in tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import accord
from accord.config import config_hash, load_config
from accord.errors import ConfigError, DataError
from accord.measures import MEASURES
from accord.measures.balanced_accuracy import balanced_accuracy
from accord.measures.f1 import macro_f1
from accord.report import aggregate, markdown

SMALL = ["rounds=2", "data.limit=200", "partition.clients=4", "executor=sequential"]


@pytest.fixture
def registered() -> Iterator[None]:
    yield
    for name in ("error_rate", "half"):
        MEASURES._entries.pop(name, None)  # the registry is shared by all tests of this process


def test_balanced_accuracy_by_hand() -> None:
    #   class 0: two of three right, class 1: none of one, class 2: one of one, class 3 does not occur
    logits = torch.eye(4)[torch.tensor([0, 0, 3, 2, 2])]
    labels = torch.tensor([0, 0, 0, 1, 2])
    assert balanced_accuracy(logits, labels) == pytest.approx((2 / 3 + 0 + 1) / 3)


def test_macro_f1_by_hand() -> None:
    logits = torch.eye(5)[torch.tensor([0, 0, 3, 2, 2])]
    labels = torch.tensor([0, 0, 0, 1, 2])
    # class 0: precision 2/2, recall 2/3; class 1: never predicted; class 2: 1/2 and 1; class 3: predicted, never right
    assert macro_f1(logits, labels) == pytest.approx((4 / 5 + 0 + 2 / 3 + 0) / 4)


def test_a_registered_metric_is_a_setting_a_record_and_a_column(registered: None, tmp_path: Path) -> None:
    before = config_hash(load_config(None, SMALL))

    @accord.metric("error_rate", better="lower", doc="share of wrong answers", percent=True)
    def error_rate(logits: Tensor, labels: Tensor) -> float:
        return 1 - float((logits.argmax(1) == labels).double().mean())

    assert error_rate(torch.eye(2), torch.tensor([0, 0])) == 0.5, "the function stays a function"
    off = load_config(None, SMALL)
    assert off.evaluate.options["error_rate"] is False
    assert config_hash(off) == before, "what is off asks for nothing"
    config = load_config(None, [*SMALL, "evaluate.error_rate=true", f"out={tmp_path}"])
    assert config_hash(config) != before
    outcome = accord.run(config)
    for record in outcome.metrics:
        assert record["error_rate"] == pytest.approx(1 - record["accuracy"])
        clients, wrong = record["clients"], record["clients_error_rate"]
        assert (wrong["best"], wrong["worst"]) == (
            pytest.approx(1 - clients["best"]),
            pytest.approx(1 - clients["worst"]),
        )
        assert wrong["weighted_mean"] == pytest.approx(1 - clients["weighted_mean"])
    summary = outcome.summary
    assert summary["error_rate"] == outcome.metrics[-1]["error_rate"]
    assert summary["client_error_rate"].keys() == {"best", "worst", "mean", "std"}
    table = markdown(aggregate([summary, {**summary, "algorithm": "other", "error_rate": 0.01}])).splitlines()
    column = [title.strip() for title in table[0].split("|")].index("error rate %")
    assert table[3].split("|")[column].strip() == "**1.00**", "lower is better"
    assert accord.resume(outcome.folder).summary["error_rate"] == summary["error_rate"]


def test_metrics_given_to_a_run(tmp_path: Path) -> None:
    def largest(logits: Tensor, labels: Tensor) -> float:
        return float(logits.softmax(1).max(1).values.mean())

    width = accord.Metric(lambda logits, labels: logits.shape[1], "width", better=None)
    config = load_config(None, [*SMALL, f"out={tmp_path}", "partition.clients=3"])
    outcome = accord.run(config, metrics=[largest, width])
    assert outcome.model is not None
    x, _ = accord.load_dataset("mnist5k").test.take(np.arange(1000))
    with torch.no_grad():
        expected = outcome.model(x).softmax(1).max(1).values.mean().item()
    assert outcome.summary["largest"] == pytest.approx(expected, rel=1e-5)
    assert outcome.summary["width"] == 10
    assert outcome.summary["client_width"] == {"best": 10, "worst": 10, "mean": 10, "std": 0}
    assert "largest" in accord.resume(outcome.folder, metrics=[largest, width]).summary


def test_one_metric_cannot_spoil_the_next(tmp_path: Path) -> None:
    def spoils(logits: Tensor, labels: Tensor) -> float:
        logits.zero_()
        labels.zero_()
        return 0.0

    def mean_label(logits: Tensor, labels: Tensor) -> float:
        return float(labels.double().mean())

    config = load_config(None, [*SMALL, "rounds=1", f"out={tmp_path}"])
    record = accord.run(config, metrics=[spoils, mean_label]).metrics[0]
    assert record["mean_label"] == pytest.approx(float(accord.load_dataset("mnist5k").test.y.double().mean()))


def test_where_it_is_not_defined(tmp_path: Path) -> None:
    def two_or_more(logits: Tensor, labels: Tensor) -> float:
        return float("nan") if len(labels) > 900 or len(labels.unique()) < 2 else 1.0

    def never(logits: Tensor, labels: Tensor) -> float:
        return float("nan")

    config = load_config(None, [*SMALL, "rounds=1", f"out={tmp_path}"])
    record = accord.run(config, metrics=[two_or_more, never]).metrics[0]
    assert record["two_or_more"] is None
    assert record["clients_two_or_more"]["mean"] == 1.0
    assert (record["never"], "clients_never" in record) == (None, False)


def broken(logits: Tensor, labels: Tensor) -> Any:
    raise KeyError("no such thing")


def words(logits: Tensor, labels: Tensor) -> Any:
    return "good"


def endless(logits: Tensor, labels: Tensor) -> float:
    return float("inf")


def one_is_not_enough(logits: Tensor, labels: Tensor) -> float:
    return 1 / (len(labels) - 1)


@pytest.mark.parametrize("function", [broken, words, endless, one_is_not_enough])
def test_a_metric_that_fails_is_found_before_the_first_round(function: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"metric {function.__name__} cannot be used: tried on 10? samples"):
        accord.run(load_config(None, [*SMALL, f"out={tmp_path}"]), metrics=[function])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["loss", "every", "test_loss", "No", "a-b", "", "_x"])
def test_names_that_mean_something_else(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        accord.Metric(lambda logits, labels: 0.0, name)


def test_a_name_or_a_direction_that_is_taken_or_unknown(registered: None) -> None:
    with pytest.raises(ConfigError, match="'drift' is registered already"):
        accord.metric("drift")(balanced_accuracy)
    with pytest.raises(ConfigError, match="'higher', 'lower' or None"):
        accord.metric("half", better="up")(balanced_accuracy)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="two measures called 'macro_f1'"):
        accord.run(load_config(None, SMALL), metrics=[macro_f1])


def test_a_value_that_is_not_finite_later_on(tmp_path: Path) -> None:
    def later(logits: Tensor, labels: Tensor) -> float:
        return float("inf") if len(labels) > 10 else 0.0

    with pytest.raises(DataError, match="metric later gave inf"):
        accord.run(load_config(None, [*SMALL, f"out={tmp_path}"]), metrics=[later])
