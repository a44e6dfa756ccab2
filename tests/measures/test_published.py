"""Metrics people publish: by hand, and as scikit-learn has them; in a run, for everyone and for each site."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import accord
from accord.errors import ConfigError
from accord.measures import MEASURES, Metric
from support.wards import run, wards

metrics = pytest.importorskip("sklearn.metrics")


def value(name: str, logits: Any, labels: Any) -> float:
    measure = MEASURES[name]
    assert isinstance(measure, Metric)
    return float(measure.function(torch.as_tensor(logits), torch.as_tensor(labels)))


def drawn(samples: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Logits that know something of the labels, with ties among them."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, samples)
    logits = np.round(rng.normal(size=(samples, classes)) + 1.5 * np.eye(classes)[labels], 1)
    return torch.tensor(logits, dtype=torch.float32), torch.tensor(labels)


class TestByHand:
    def test_auroc_of_two_classes(self) -> None:
        # scores of the positives 2, 0 and of the negatives 1, 0: of four pairs 2 > 1, 2 > 0, 0 < 1, and one tie
        logits = torch.tensor([[0.0, 2.0], [0.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
        assert value("auroc", logits, [1, 1, 0, 0]) == (1 + 1 + 0 + 0.5) / 4

    def test_average_precision_of_two_classes(self) -> None:
        # ranked: positive, negative, positive: precisions 1 and 2/3 at the two positives, each half of the recall
        logits = torch.tensor([[0.0, 3.0], [0.0, 2.0], [0.0, 1.0]])
        assert value("average_precision", logits, [1, 0, 1]) == pytest.approx((1 + 2 / 3) / 2)

    def test_a_class_that_nobody_shows_is_left_out(self) -> None:
        # class 2 never occurs. Against the rest, class 0 has odds 0.9 : 0.1 and 0.2 : 0.8, class 1 0.6 : 0.4 and so on
        probabilities = torch.tensor([[0.9, 0.05, 0.05], [0.2, 0.6, 0.2], [0.4, 0.5, 0.1]])
        # class 0: 0.9, 0.4 against 0.2: 1.0; class 1: 0.6 against 0.05, 0.5: 1.0
        assert value("auroc", probabilities.log(), [0, 1, 0]) == 1.0
        # class 0: 0.9, 0.2 against 0.4: one of two pairs; class 1: 0.5 against 0.05, 0.6: one of two pairs
        assert value("auroc", probabilities.log(), [0, 0, 1]) == 0.5

    def test_saturated_probabilities_still_rank(self) -> None:
        # in float32 both are probability 1
        assert value("auroc", [[0.0, 200.0], [0.0, 300.0]], [0, 1]) == 1.0
        assert value("auroc", [[0.0, 200.0, 0.0], [0.0, 300.0, 0.0]], [0, 1]) == (1.0 + 1.0) / 2

    def test_f1_of_the_positive_class(self) -> None:
        logits = torch.eye(2)[torch.tensor([1, 1, 0, 0, 1])]
        # TP 2, FP 1, FN 1
        assert value("f1", logits, [1, 1, 1, 0, 0]) == pytest.approx(4 / 6)

    def test_ece(self) -> None:
        # confidences 0.7 (right, wrong) and 0.95 (right): |0.5 - 0.7| * 2/3 + |1 - 0.95| * 1/3
        probabilities = torch.tensor([[0.7, 0.3], [0.3, 0.7], [0.95, 0.05]], dtype=torch.float64)
        assert value("ece", probabilities.log(), [0, 0, 0]) == pytest.approx(0.2 * 2 / 3 + 0.05 / 3)

    def test_ece_bins_end_at_fifteenths(self) -> None:
        # 0.8 = 12/15 belongs to the bin that ends there; 0.81 to the next, so that their gaps do not cancel
        probabilities = torch.tensor([[0.79, 0.21], [0.19, 0.81]], dtype=torch.float64)
        apart = abs(1 - 0.79) / 2 + abs(0 - 0.81) / 2
        assert value("ece", probabilities.log(), [0, 0]) == pytest.approx(apart)
        together = torch.tensor([[0.81, 0.19], [0.14, 0.86]], dtype=torch.float64)
        assert value("ece", together.log(), [0, 0]) == pytest.approx(abs(1 - 0.81 - 0.86) / 2)

    def test_brier_and_log_loss(self) -> None:
        logits = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64).log()
        assert value("brier", logits, [0, 1]) == pytest.approx((2 * 0.25**2 + 2 * 0.5**2) / 2)
        assert value("log_loss", logits, [0, 1]) == pytest.approx(-(math.log(0.75) + math.log(0.5)) / 2)

    @pytest.mark.parametrize("name", ["auroc", "average_precision"])
    def test_of_one_class_there_is_no_ranking(self, name: str) -> None:
        for classes, label in ((2, 1), (2, 0), (5, 3)):
            assert math.isnan(value(name, torch.randn(4, classes), [label] * 4))
        assert math.isnan(value(name, [[0.0, math.nan], [0.0, 1.0]], [0, 1]))

    def test_of_no_positives_there_is_no_f1(self) -> None:
        assert math.isnan(value("f1", [[1.0, 0.0]], [0]))
        assert value("f1", [[0.0, 1.0]], [0]) == 0.0


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_as_scikit_learn_has_them(classes: int, seed: int) -> None:
    logits, labels = drawn(60, classes, seed)
    probabilities, y = logits.double().softmax(1).numpy(), labels.numpy()
    predicted = logits.argmax(1).numpy()
    scores = probabilities[:, 1] if classes == 2 else probabilities
    # odds in float64 keep apart what probabilities rounded to 12 digits do; ties of the logits stay ties
    expected = {
        "auroc": metrics.roc_auc_score(y, np.round(scores, 12), multi_class="ovr"),
        "average_precision": metrics.average_precision_score(
            y if classes == 2 else np.eye(classes)[y], np.round(scores, 12)
        ),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, predicted),
        "macro_f1": metrics.f1_score(y, predicted, average="macro"),
        "micro_f1": metrics.f1_score(y, predicted, average="micro"),
        "log_loss": metrics.log_loss(y, probabilities),
        "brier": metrics.brier_score_loss(y, probabilities, scale_by_half=False),
    }
    if classes == 2:
        expected["f1"] = metrics.f1_score(y, predicted)
    for name, number in expected.items():
        assert value(name, logits, labels) == pytest.approx(number, abs=1e-9), name


def test_in_a_run_for_everyone_and_for_each_site(tmp_path: Path) -> None:
    names = ("auroc", "average_precision", "f1", "ece", "brier")
    data = wards()
    outcome = run(tmp_path, *(f"evaluate.{name}=true" for name in names))
    assert outcome.model is not None
    with torch.no_grad():
        logits = outcome.model(data.test_pool.x).double()
    scores, y = logits.softmax(1)[:, 1].numpy(), data.test_pool.y.numpy()
    predicted = logits.argmax(1).numpy()
    summary, rows = outcome.summary, outcome.sites()
    assert summary["auroc"] == pytest.approx(metrics.roc_auc_score(y, scores))
    assert summary["f1"] == pytest.approx(metrics.f1_score(y, predicted))
    each = [metrics.roc_auc_score(y[data.test[k]], scores[data.test[k]]) for k in range(3)]
    spread = summary["client_auroc"]
    assert spread["mean"] == pytest.approx(np.mean(each))
    assert (spread["worst"], spread["std"]) == (pytest.approx(min(each)), pytest.approx(np.std(each)))
    assert spread["undefined"] == 1, "Turin's test data is of one class"
    assert outcome.metrics[-1]["clients_auroc"]["clients"] == 3
    assert [row["auroc"] for row in rows] == [*map(pytest.approx, each), None]
    precision = [metrics.average_precision_score(y[data.test[k]], scores[data.test[k]]) for k in range(3)]
    assert [row["average_precision"] for row in rows] == [*map(pytest.approx, precision), None]
    assert "undefined" not in summary["client_brier"]
    accuracies = [(predicted == y)[data.test[k]].mean() for k in range(4)]
    assert [row["accuracy"] for row in rows] == [pytest.approx(a) for a in accuracies]
    assert summary["client_brier"]["worst"] == max(row["brier"] for row in rows), "less is better"


def test_a_metric_for_two_classes_is_refused_for_three(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.f1 is for 2 classes, and the data has 3"):
        run(tmp_path, "evaluate.f1=true", data=wards(3))
    assert not list(tmp_path.iterdir())


def test_without_scikit_learn_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sklearn", "sklearn.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"evaluate\.auroc needs sklearn.*pip install 'accord-fl\[metrics\]'"):
        run(tmp_path, "evaluate.auroc=true")
    assert not list(tmp_path.iterdir()), "before the run starts"
    plain = run(tmp_path, "evaluate.f1=true", "evaluate.ece=true", "evaluate.macro_f1=true")
    assert plain.summary["f1"] is not None, "what is not a ranking needs no extra"


def test_an_own_metric_handed_to_a_run_is_in_the_tables(tmp_path: Path) -> None:
    from accord.report import aggregate, markdown, read_summary, run_lines

    def sureness(logits: Tensor, labels: Tensor) -> float:
        return float(logits.softmax(1).max(1).values.mean())

    own = accord.Metric(sureness, better="lower", percent=True)
    outcome = run(tmp_path, metrics=[own])
    written = dict(run_lines(read_summary(outcome.folder)))
    assert written["sureness %"] == f"{100 * outcome.summary['sureness']:.2f}"
    assert written["worst client sureness %"] == f"{100 * outcome.summary['client_sureness']['worst']:.2f}"
    summary = read_summary(outcome.folder)
    titles, _, one, other = markdown(
        aggregate([{**summary, "sureness": 0.9}, {**summary, "algorithm": "other", "sureness": 0.8}])
    ).splitlines()[:4]
    place = [title.strip() for title in titles.split("|")].index("sureness %")
    assert [line.split("|")[place].strip() for line in (one, other)] == ["90.00", "**80.00**"]
    assert [row["sureness"] for row in outcome.sites()] != [None] * 4


@pytest.mark.parametrize(
    "columns", [3, [3], [{}], [{"key": "x"}], [{"key": 1, "title": "t", "path": ["a"], "write": "number"}]]
)
def test_columns_of_a_foreign_summary(columns: Any) -> None:
    from accord.report import run_lines

    assert run_lines({"columns": columns, "accuracy": 0.5, "a": 1}) == [("accuracy %", "50.00")]


def test_confusion_matrix_of_the_final_model(tmp_path: Path) -> None:
    data = wards()
    outcome = run(tmp_path, "evaluate.confusion=true")
    assert outcome.model is not None
    with torch.no_grad():
        predicted = outcome.model(data.test_pool.x).argmax(1).numpy()
    expected = metrics.confusion_matrix(data.test_pool.y.numpy(), predicted)
    assert expected[0, 1] != expected[1, 0], "rows and columns must show"
    assert outcome.summary["confusion"] == {"classes": ["healthy", "ill"], "counts": expected.tolist()}
