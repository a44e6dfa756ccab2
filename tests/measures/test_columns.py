"""What the tables of runs show of each measure, written down once more: titles, places, and which values are good."""

from __future__ import annotations

from typing import Any

import pytest

from accord.measures import MEASURES
from accord.measures.column import Column, number, percent


def metric(name: str, title: str, write: Any, better: str) -> dict[str, tuple[Any, ...]]:
    """A metric's: its value, and of the clients' values mean, worst and deviation at the end of a run."""
    clients, unit = f"client_{name}", " %" if write is percent else ""
    return {
        name: (title + unit, (name,), write, better, True),
        f"mean_client_{name}": (f"mean client {title}{unit}", (clients, "mean"), write, better, False),
        f"worst_client_{name}": (f"worst client {title}{unit}", (clients, "worst"), write, better, False),
        f"client_{name}_std": (f"client {title} std{unit}", (clients, "std"), write, "lower", False),
    }


# key: title, where it lies in the summary, how it is written, better, shown in comparisons
COLUMNS: dict[str, dict[str, tuple[Any, ...]]] = {
    "accuracy": {
        "accuracy": ("accuracy %", ("accuracy",), percent, "higher", True),
        "best_accuracy": ("best %", ("best_accuracy",), percent, "higher", True),
        "top5_accuracy": ("top-5 rounds %", ("top5_accuracy",), percent, "higher", True),
    },
    "auroc": metric("auroc", "AUROC", number, "higher"),
    "average_precision": metric("average_precision", "average precision", number, "higher"),
    "balanced_accuracy": metric("balanced_accuracy", "balanced accuracy", percent, "higher"),
    "brier": metric("brier", "brier", number, "lower"),
    "clients": {
        "best_client": ("best client %", ("client_accuracy", "best"), percent, "higher", False),
        "worst_client": ("worst client %", ("client_accuracy", "worst"), percent, "higher", True),
        "mean_client": ("mean client %", ("client_accuracy", "mean"), percent, "higher", True),
        "client_std": ("client std %", ("client_accuracy", "std"), percent, "lower", True),
    },
    "mae": metric("mae", "MAE", number, "lower"),
    "r2": metric("r2", "R2", number, "higher"),
    "perplexity": metric("perplexity", "perplexity", number, "lower"),
    "ece": metric("ece", "ECE", percent, "lower"),
    "f1": metric("f1", "f1", percent, "higher"),
    "log_loss": metric("log_loss", "log loss", number, "lower"),
    "micro_f1": metric("micro_f1", "micro f1", percent, "higher"),
    "epsilon": {"epsilon": ("epsilon", ("epsilon",), number, "lower", True)},
    "drift": {"drift": ("update cosine", ("drift", "mean"), number, None, True)},
    "local_on_global": {"local_on_global": ("local on global %", ("local_on_global", "mean"), percent, "higher", True)},
    "macro_f1": metric("macro_f1", "macro f1", percent, "higher"),
    "map": {"map": ("mAP %", ("map",), percent, "higher", True)},
    "personal": {
        "personal_before": ("personal before %", ("personal_accuracy_before", "mean"), percent, "higher", True),
        "personal_accuracy": ("personal %", ("personal_accuracy", "mean"), percent, "higher", True),
        "personal_best": ("best personal %", ("personal_accuracy", "best"), percent, "higher", False),
        "personal_worst": ("worst personal %", ("personal_accuracy", "worst"), percent, "higher", False),
        "personal_std": ("personal std %", ("personal_accuracy", "std"), percent, "lower", False),
    },
    "unseen": {},
    "feature_map": {},
    "local_view": {},
    "calibration": {},
    "confusion": {},
    "training": {"training_accuracy": ("training %", ("training_accuracy",), percent, "higher", False)},
    "validation": {"validation_accuracy": ("validation %", ("validation_accuracy",), percent, "higher", False)},
}
# Runs of regression have a number of their own in these places, of which less is better.
RMSE: dict[str, dict[str, tuple[Any, ...]]] = {
    "accuracy": {
        "rmse": ("RMSE", ("rmse",), number, "lower", True),
        "best_rmse": ("best RMSE", ("best_rmse",), number, "lower", True),
        "top5_rmse": ("top-5 rounds RMSE", ("top5_rmse",), number, "lower", True),
    },
    "clients": {
        "best_client_rmse": ("best client RMSE", ("client_rmse", "best"), number, "lower", False),
        "worst_client_rmse": ("worst client RMSE", ("client_rmse", "worst"), number, "lower", True),
        "mean_client_rmse": ("mean client RMSE", ("client_rmse", "mean"), number, "lower", True),
        "client_std_rmse": ("client std RMSE", ("client_rmse", "std"), number, "lower", True),
    },
    "local_on_global": {
        "local_on_global_rmse": ("local on global RMSE", ("local_on_global_rmse", "mean"), number, "lower", True)
    },
    "personal": {
        "personal_before_rmse": ("personal before RMSE", ("personal_rmse_before", "mean"), number, "lower", True),
        "personal_rmse": ("personal RMSE", ("personal_rmse", "mean"), number, "lower", True),
        "personal_best_rmse": ("best personal RMSE", ("personal_rmse", "best"), number, "lower", False),
        "personal_worst_rmse": ("worst personal RMSE", ("personal_rmse", "worst"), number, "lower", False),
        "personal_std_rmse": ("personal std RMSE", ("personal_rmse", "std"), number, "lower", False),
    },
    "training": {"training_rmse": ("training RMSE", ("training_rmse",), number, "lower", False)},
    "validation": {"validation_rmse": ("validation RMSE", ("validation_rmse",), number, "lower", False)},
}
# name: on unless told, read in every round, measured by the clients, wants kept
HABITS: dict[str, tuple[Any, ...]] = {
    "accuracy": (None, False, False, set()),
    "balanced_accuracy": (False, False, False, {"logits"}),
    "micro_f1": (False, False, False, {"logits"}),
    "log_loss": (False, False, False, {"logits"}),
    "f1": (False, False, False, {"logits"}),
    "ece": (False, False, False, {"logits"}),
    "brier": (False, False, False, {"logits"}),
    "mae": (False, False, False, {"logits"}),
    "r2": (False, False, False, {"logits"}),
    "perplexity": (False, False, False, set()),
    "average_precision": (False, False, False, {"logits"}),
    "auroc": (False, False, False, {"logits"}),
    "clients": (True, False, False, set()),
    "epsilon": (None, False, False, set()),
    "drift": (False, False, False, set()),
    "local_on_global": (False, False, False, set()),
    "calibration": (True, False, False, {"logits"}),
    "confusion": ("auto", False, False, {"logits"}),
    "macro_f1": (False, False, False, {"logits"}),
    "map": (False, False, False, {"features"}),
    "personal": ("auto", True, True, set()),
    "unseen": (0, False, False, set()),
    "feature_map": (0, False, False, set()),
    "local_view": (0, False, False, set()),
    "training": (False, False, False, set()),
    "validation": (None, False, False, set()),
}


def test_every_measure_is_written_down_here() -> None:
    ours = {name for name, measure in MEASURES.items() if type(measure).__module__.startswith("accord.")}
    assert HABITS.keys() == COLUMNS.keys() == ours


@pytest.mark.parametrize("name", HABITS)
def test_columns_and_habits(name: str) -> None:
    measure = MEASURES[name]
    found = {c.key: (c.title, c.path, c.write, c.better, c.compared) for c in measure.columns}
    assert found == COLUMNS[name] | RMSE.get(name, {})
    default = None if measure.setting is None else measure.setting.default
    assert (default, measure.every_round, measure.at_clients, set(measure.reads)) == HABITS[name]


def test_numbers_are_found_and_written() -> None:
    column = Column("x", "x", ("a", "b"))
    assert column.find({"a": {"b": 0.5}}) == 0.5
    assert column.find({"a": {}}) is None
    assert column.find({"a": 3}) is None
    assert (percent(0.12345), percent(1), number(1234.5678), number(0.5)) == ("12.35", "100.00", "1235", "0.5")
