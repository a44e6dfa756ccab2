"""What measures show and where they find it, and their edges on a few numbers."""

from __future__ import annotations

import base64
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import accord.measures
from accord.core.plan import Plan
from accord.core.task import LocalTraining
from accord.data.federated import Groups
from accord.errors import ConfigError, DataError
from accord.measures import MEASURES
from accord.measures.accuracy import rounds_to, top_mean
from accord.measures.calibration import reliability
from accord.measures.column import Column, column_of, leading, number, of_headline, percent
from accord.measures.confusion import confusion_matrix
from accord.measures.drift import cosines
from accord.measures.ece import ece
from accord.measures.f1 import f1, macro_f1, micro_f1
from accord.measures.metric import Metric, metric
from accord.measures.perplexity import _power
from accord.measures.predictions import ClientScores, Scores
from accord.measures.scene import Final
from accord.measures.sites import sites_of
from accord.measures.spread import in_short, spread_record
from accord.parts.losses import SampleLoss
from accord.problems import PROBLEMS
from support.federation import tiny_model

T = torch.tensor
ACCURACY, RMSE = PROBLEMS["classification"], PROBLEMS["regression"]


def shown(name: str) -> list[tuple[str, str, str, str | None, bool]]:
    """Of each column of the leading number `accuracy`: key, title, path, which is better, whether runs are compared."""
    return [
        (c.key, c.title, ".".join(c.path), c.better, c.compared) for c in MEASURES[name].columns if "rmse" not in c.key
    ]


def test_columns_of_a_share() -> None:
    assert shown("accuracy") == [
        ("accuracy", "accuracy %", "accuracy", "higher", True),
        ("best_accuracy", "best %", "best_accuracy", "higher", True),
        ("top5_accuracy", "top-5 rounds %", "top5_accuracy", "higher", True),
    ]
    assert shown("clients") == [
        ("best_client", "best client %", "client_accuracy.best", "higher", False),
        ("worst_client", "worst client %", "client_accuracy.worst", "higher", True),
        ("mean_client", "mean client %", "client_accuracy.mean", "higher", True),
        ("client_std", "client std %", "client_accuracy.std", "lower", True),
    ]
    assert shown("validation") == [("validation_accuracy", "validation %", "validation_accuracy", "higher", False)]
    assert shown("drift") == [("drift", "update cosine", "drift.mean", None, True)]
    assert shown("local_on_global") == [
        ("local_on_global", "local on global %", "local_on_global.mean", "higher", True)
    ]
    personal = {key: (better, compared) for key, _, _, better, compared in shown("personal")}
    assert personal["personal_best"] == ("higher", False)
    assert personal["personal_worst"] == ("higher", False)
    assert personal["personal_std"] == ("lower", False)
    beside = {c.key: c.beside for c in MEASURES["clients"].columns}
    assert (beside["mean_client"], beside["mean_client_rmse"], beside["worst_client"]) == (
        "personal_accuracy",
        "personal_rmse",
        "",
    )


def test_columns_of_an_error() -> None:
    best, spread = leading("best_{}", "best", ("best_{}",))[1], leading("std", "std", ("a", "std"), spread=True)
    assert best == Column("best_rmse", "best RMSE", ("best_rmse",), number, "lower", True, "")
    assert [column.better for column in spread] == ["lower", "lower"]
    assert [column.key for column in spread] == ["std", "std_rmse"]
    assert spread[1].path == ("a_rmse", "std")
    assert leading("{}", "", ("{}",))[0].write is percent
    assert of_headline("best_{}", "accuracy") == "best_accuracy"
    assert (percent(0.12345), number(1234.5678), number(0.00012346)) == ("12.35", "1235", "0.0001235")


def test_a_column_finds_its_number_and_travels() -> None:
    column = Column("k", "t", ("a", "b"))
    assert column.find({"a": {"b": 3}}) == 3
    assert column.find({"a": 1}) is None
    assert column.find({}) is None
    record = column.as_record()
    assert record == {
        **{"key": "k", "title": "t", "path": ["a", "b"], "write": "percent"},
        **{"better": "higher", "compared": True, "beside": ""},
    }
    assert column_of(record) == column
    assert Column("k", "t", ("a",), repr).as_record()["write"] == ""
    for wrong in (
        {**record, "better": "best"},
        {**record, "key": 1},
        {**record, "path": ["a", 1]},
        {**record, "path": None},
        {**record, "write": "words"},
        {**record, "more": 1},
    ):
        assert column_of(wrong) is None
    assert column_of({**record, "better": None}) is not None


def test_rounds_and_targets() -> None:
    history = {1: 0.25, 2: 0.75, 3: 0.5, 4: math.nan}
    assert top_mean(history, 2) == 0.625
    assert top_mean(history, 2, higher=False) == 0.375
    assert top_mean(history, 9) == 0.5
    assert top_mean({n: float(n) for n in range(9)}) == 6.0  # 4 to 8
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        top_mean(history, 0)
    assert top_mean(history, 1) == 0.75
    with pytest.raises(DataError, match="no round was evaluated"):
        top_mean({1: math.nan})
    assert rounds_to({1: 0.5 - 1e-9}, [0.5]) == {0.5: 1}, "as far as rounding may miss it"
    assert rounds_to({30: 0.4, 10: 0.3, 20: 0.5}, [0.4, 0.5, 0.6, 0.1 + 0.2]) == {
        0.4: 20,
        0.5: 20,
        0.6: None,
        0.1 + 0.2: 10,
    }


def test_spreads_of_numbers_where_less_is_better() -> None:
    record = spread_record([1.0, 3.0, math.nan, math.nan], [1, 3, 2, 0], "lower")
    assert (record["best"], record["worst"], record["mean"], record["std"]) == (1.0, 3.0, 2.0, 1.0)
    assert (record["weighted_mean"], record["clients"], record["skipped"]) == (2.5, 2, 2)
    assert record["undefined"] == 1, "the third has samples and no value, the fourth has none"
    assert record["deciles"] == pytest.approx([1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6, 2.8])
    assert in_short(record) == {"best": 1.0, "worst": 3.0, "mean": 2.0, "std": 1.0, "undefined": 1}
    plain = spread_record([1.0, 3.0])
    assert (plain["best"], plain["worst"], plain["weighted_mean"], "undefined" in plain) == (3.0, 1.0, None, False)
    assert "undefined" not in spread_record([1.0, math.nan], [1, 0])
    assert spread_record([1.0, 3.0], [0, 2])["weighted_mean"] == 3.0, "a value of no samples has no weight"
    for wrong in ([0, 0], [-1, 3], [math.inf, 1]):
        with pytest.raises(DataError, match="sizes must be sample counts of 0 or more, and not all of them 0"):
            spread_record([1.0, 3.0], wrong)


def scores(values: list[float], sizes: list[int]) -> ClientScores:
    groups = Groups(np.arange(len(values)), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    empty = torch.zeros(0)
    return ClientScores(
        Scores(np.array(values), np.zeros(len(values)), empty, empty, empty), np.arange(len(values)), groups, ACCURACY
    )


def test_validation_is_a_mean_over_samples() -> None:
    clients = scores([1.0, 0.0, 0.0, 1.0], [3, 0, 1])  # 1/3 of three, nobody, 1 of one: 2 of 4
    assert clients.means.tolist()[::2] == pytest.approx([1 / 3, 1.0])
    assert math.isnan(clients.means[1])
    moment: Any = SimpleNamespace(
        predictions=SimpleNamespace(clients=lambda split: clients if split == "validation" else None)
    )
    scene: Any = SimpleNamespace(problem=ACCURACY)
    assert MEASURES["validation"].round(scene, moment) == {"validation_accuracy": 0.5}
    scene.problem = RMSE
    assert MEASURES["validation"].round(scene, moment) == {"validation_rmse": pytest.approx(0.5**0.5)}
    moment.predictions = None
    assert MEASURES["validation"].round(scene, moment) == {}
    records = [{"validation_rmse": 2.0}, {"validation_rmse": 1.0}, {}]
    assert MEASURES["validation"].summary(scene, records) == {"validation_rmse": 1.0}
    assert MEASURES["validation"].summary(scene, []) == {}


def test_what_a_round_says_of_each_client() -> None:
    clients = scores([1.0, 0.0, 0.0, 1.0], [3, 0, 1])
    moment: Any = SimpleNamespace(
        predictions=SimpleNamespace(clients=lambda split: clients if split == "test" else None)
    )
    scene: Any = SimpleNamespace(problem=ACCURACY)
    record = MEASURES["clients"].round(scene, moment)
    assert record["each_client"] == [0.3333, None, 1.0]
    assert (record["clients"]["best"], record["clients"]["worst"]) == (1.0, pytest.approx(1 / 3))
    assert record["clients"]["weighted_mean"] == 0.5
    scene.problem = RMSE
    assert MEASURES["clients"].round(scene, moment)["clients"]["best"] == pytest.approx(1 / 3), "less is better"
    squares = replace(scores([4.0, 12.0, 1.0], [2, 0, 1]), problem=RMSE)  # roots of 8 and of 1
    moment.predictions = SimpleNamespace(clients=lambda split: squares)
    assert MEASURES["clients"].round(scene, moment)["each_client"] == [2.8284, None, 1.0]
    moment.predictions = None
    assert MEASURES["clients"].round(scene, moment) == {}
    for count, named in ((1000, True), (1001, False)):
        many = scores([1.0] * count, [1] * count)
        moment.predictions = SimpleNamespace(clients=lambda split, many=many: many)
        assert ("each_client" in MEASURES["clients"].round(scene, moment)) is named
    last = {"best": 1.0, "worst": 0.0, "mean": 0.5, "std": 0.5, "clients": 2}
    told = MEASURES["clients"].summary(scene, [{"clients": {"best": 9.0}}, {"clients": last}, {}])
    assert told == {"client_rmse": {"best": 1.0, "worst": 0.0, "mean": 0.5, "std": 0.5}}
    assert MEASURES["clients"].summary(scene, []) == {"client_rmse": {}}
    final: Any = SimpleNamespace(clients=clients)
    assert MEASURES["clients"].sites(scene, final)["rmse"].tolist()[::2] == pytest.approx([1 / 3, 1.0])
    final.clients = None
    assert MEASURES["clients"].sites(scene, final) == {}


def test_environments_are_named_where_there_are_several() -> None:
    def told(*means: tuple[float, float], problem: Any = ACCURACY, readings: Any = None) -> Any:
        names = [SimpleNamespace(name=f"e{place}") for place in range(len(means))]
        scene: Any = SimpleNamespace(
            problem=problem,
            data=SimpleNamespace(environments=names),
            algorithm=SimpleNamespace(readings=lambda new: readings or {}),
            predictions=lambda other: SimpleNamespace(pool_means=other),
        )
        moment: Any = SimpleNamespace(predictions=SimpleNamespace(pool_means=list(means)), new={})
        return MEASURES["accuracy"].round(scene, moment)

    assert told((0.25, 2.0)) == {"accuracy": 0.25, "test_loss": 2.0}
    both = told((0.25, 2.0), (0.75, 4.0))
    assert both == {"accuracy": 0.5, "test_loss": 3.0, "environments": {"e0": 0.25, "e1": 0.75}}
    squares = told((4.0, 2.0), (16.0, 4.0), problem=RMSE)
    assert squares == {"rmse": 3.0, "test_loss": 3.0, "environments": {"e0": 2.0, "e1": 4.0}}
    read = told((0.25, 2.0), readings={"other": [(0.5, 1.0)]})
    assert read["readings"] == {"other": {"accuracy": 0.5, "test_loss": 1.0}}
    nothing: Any = SimpleNamespace(predictions=None)
    assert MEASURES["accuracy"].round(nothing, nothing) == {}


@pytest.mark.parametrize("problem", [ACCURACY, RMSE])
def test_what_is_read_off_a_curve(problem: Any) -> None:
    name = problem.headline
    scene: Any = SimpleNamespace(problem=problem, targets=(0.5, 0.9, 0.95))
    values = [0.1, 0.9, 0.5, 0.6, 0.7, 0.8]
    records = [{"round": 2 * n + 2, name: v, "clock": 10.0 * n} for n, v in enumerate(values)]
    found = MEASURES["accuracy"].summary(scene, [*records, {"round": 14, "clock": 99.0}])
    best, five = (0.9, 0.7) if problem is ACCURACY else (0.1, (0.1 + 0.5 + 0.6 + 0.7 + 0.8) / 5)
    assert found.pop(name) == 0.8
    assert found.pop(f"best_{name}") == best
    assert found.pop(f"top5_{name}") == pytest.approx(five)
    targets = {"0.5": 4, "0.9": 4, "0.95": None}
    clock = {"0.5": 10.0, "0.9": 10.0, "0.95": None}
    assert found == ({"rounds_to": targets, "clock_to": clock} if problem is ACCURACY else {})
    plain = MEASURES["accuracy"].summary(scene, [{"round": 2, name: 0.6}])
    assert "clock_to" not in plain
    empty = MEASURES["accuracy"].summary(scene, [{"round": 1}])
    assert empty[name] is empty[f"best_{name}"] is empty[f"top5_{name}"] is None


def test_training_counts_the_samples_of_those_who_train() -> None:
    """Of three, none, one and two samples of members and of a newcomer: 2 of 4 right, whatever the newcomer's are."""
    clients = scores([1.0, 0.0, 0.0, 1.0, 0.0, 0.0], [3, 0, 1, 2])
    moment: Any = SimpleNamespace(
        predictions=SimpleNamespace(clients=lambda split: clients if split == "train" else None)
    )
    scene: Any = SimpleNamespace(problem=ACCURACY, members=[0, 1, 2])
    assert MEASURES["training"].round(scene, moment) == {"training_accuracy": 0.5}
    scene.problem = RMSE
    assert MEASURES["training"].round(scene, moment) == {"training_rmse": pytest.approx(0.5**0.5)}
    moment.predictions = None
    assert MEASURES["training"].round(scene, moment) == {}
    records = [{"training_rmse": 2.0}, {"training_rmse": 1.0}, {}]
    assert MEASURES["training"].summary(scene, records) == {"training_rmse": 1.0}
    assert MEASURES["training"].summary(scene, []) == {}


def test_newcomers_curves_are_averaged_over_those_with_data() -> None:
    """Two of four newcomers train and are tested: 1 and 2 of 4 right at first, 3 and 4 after the first epoch."""
    right = {2: [1.0, 3.0, 4.0], 9: [2.0, 4.0, 0.0]}
    visits: list[Any] = []
    judged: list[float] = []

    class Task(LocalTraining):
        def finish(self, job: Any, carry: Any) -> Any:
            sums = {"personal_correct": T(judged.pop(0)), "personal_examples": T(4.0)}
            return SimpleNamespace(metrics=sums)

    task = Task(tiny_model(), (SampleLoss(),), plan=Plan(epochs=9, steps=5, batch_size=3))

    def visit(client: int, task: Any, message: Any, round: int, look: Any) -> None:
        visits.append((client, task.plan, message, round))
        for count in right[client]:
            judged.append(count)
            look(None, None)

    samples = {2: [0], 4: [], 9: [0, 1], 7: [0]}
    tests = {2: [0], 4: [0], 9: [0], 7: []}
    scene: Any = SimpleNamespace(
        algorithm=SimpleNamespace(tasks={"train": task}, message=lambda state: ("sent", state)),
        settings={"unseen_epochs": 2},
        data=SimpleNamespace(unseen=frozenset({7, 9, 4, 2}), test=tests, train=samples),
        problem=ACCURACY,
        rounds=30,
        visit=visit,
    )
    final: Any = SimpleNamespace(state="last")
    found = MEASURES["unseen"].end(scene, final)
    assert found == {"unseen": {"clients": 2, "accuracy_after_epochs": [1.5 / 4, 3.5 / 4, 2.0 / 4]}}
    plan = Plan(epochs=2, steps=0, batch_size=3)
    assert visits == [(client, plan, ("sent", "last"), 30) for client in (2, 9)]
    scene.problem = RMSE
    errors = MEASURES["unseen"].end(scene, final)["unseen"]["rmse_after_epochs"]
    assert errors == pytest.approx([(0.5 + 0.5**0.5) / 2, (0.75**0.5 + 1.0) / 2, (1.0 + 0.0) / 2]), "means of roots"
    scene.data.unseen = frozenset({4, 7})
    assert MEASURES["unseen"].end(scene, final) == {"unseen": {}}


def test_what_clients_models_make_of_everyones_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients answer; the first one's features lie beside the global model's, and it holds classes 1 and 9."""
    whole = SimpleNamespace(features=T([[0.0], [1.0], [2.0], [3.0]]), labels=T([3, 9, 1, 0]), logits=None)
    said = {3: [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], 5: [[1.0, 0.0]] * 4}
    asked: list[Any] = []

    def ask(task: str, clients: Any, message: Any) -> Any:
        asked.append((task, clients, message))
        return SimpleNamespace(ids=(3, 5), results=(3, 5))

    def predictions(predictor: Any, keep: Any) -> Any:
        state, client = predictor
        assert state == "last"
        assert keep == {"logits", "features"}
        features = (10 if client == 3 else 100) * whole.features
        return SimpleNamespace(plain=SimpleNamespace(logits=T(said[client]), features=features))

    scene: Any = SimpleNamespace(
        members=[3, 5],
        algorithm=SimpleNamespace(
            message=lambda state: {"sent": state}, local_predictor=lambda state, result: (state, result)
        ),
        judged=lambda state, keep: SimpleNamespace(plain=whole) if keep == {"features"} else None,
        predictions=predictions,
        settings={"local_view": 2},
        data=SimpleNamespace(train_pool=SimpleNamespace(y=T([4, 9, 1, 9, 8])), train={3: [1, 2, 3], 5: [0]}),
        device=torch.device("cpu"),
    )
    final: Any = SimpleNamespace(state="last", ask=ask)
    view = MEASURES["local_view"].end(scene, final)["local_view"]
    assert asked == [("train", [3, 5], {"sent": "last"})]
    assert view["answers"] == {"3": [0.25, 0.75], "5": [1.0, 0.0]}
    assert (view["map"]["client"], view["map"]["held"]) == (3, [1, 9])
    assert base64.b64decode(view["map"]["labels"]) == bytes([3, 0]), "the first and the last sample"
    points = np.frombuffer(base64.b64decode(view["map"]["points"]), dtype=np.uint8).reshape(-1, 2)
    assert len(points) == 4, "two samples by each of two models"
    mapped: list[Any] = []
    monkeypatch.setattr(
        "accord.measures.local_view.tsne", lambda features: mapped.append(features.tolist()) or torch.zeros(4, 2)
    )
    MEASURES["local_view"].end(scene, final)
    assert mapped == [[[0.0], [3.0], [0.0], [30.0]]], "by the global model, then by the first client's"


def test_a_map_of_features_is_of_samples_spread_over_the_pool_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def scored(factor: float) -> Any:
        features = factor * T([[[0.0], [1.0]], [[2.0], [3.0]], [[4.0], [5.0]]], dtype=torch.float64)
        return SimpleNamespace(features=features, labels=T([7, 8, 9]), logits=None)

    mapped: list[Any] = []
    monkeypatch.setattr(
        "accord.measures.feature_map.tsne",
        lambda features: mapped.append((features.dtype, features.tolist())) or T([[0.0, 1.0], [4.0, 2.0]]),
    )
    judged: Any = SimpleNamespace(plain=scored(1.0), environments=[scored(1.0), scored(10.0)])
    scene: Any = SimpleNamespace(
        judged=lambda state, keep: judged if (state, keep) == ("last", {"features"}) else None,
        settings={"feature_map": 2},
        device=torch.device("cpu"),
    )
    final: Any = SimpleNamespace(state="last")
    found = MEASURES["feature_map"].end(scene, final)["feature_map"]
    assert mapped == [(torch.float32, [[0.0, 1.0], [4.0, 5.0]])], "the first and the last sample, a row each"
    assert base64.b64decode(found["labels"]) == bytes([7, 9])
    assert base64.b64decode(found["points"]) == bytes([0, 0, 255, 64])


def sums(right: float, before: float, count: int) -> dict[str, torch.Tensor]:
    return {"personal_correct": T(right), "personal_before": T(before), "personal_examples": T(count)}


def test_clients_own_models_before_and_after_their_training() -> None:
    """Errors of client 1: 16, then 1, of four samples; of client 3: 9, then 4, of two. Client 0 has none to test."""
    told: Any = {3: sums(8.0, 18.0, 2), 0: {"loss": T(7.0)}, 1: sums(4.0, 64.0, 4)}
    scene: Any = SimpleNamespace(problem=RMSE, data=range(4))
    replies = SimpleNamespace(ids=tuple(told), results=tuple(SimpleNamespace(metrics=m) for m in told.values()))
    moment: Any = SimpleNamespace(replies=replies)
    round = MEASURES["personal"].round(scene, moment)["personal"]
    final: Any = SimpleNamespace(trained=told)
    end = MEASURES["personal"].end(scene, final)
    assert list(end) == ["personal_rmse_before", "personal_rmse"]
    assert end["personal_rmse"] == round
    assert (round["best"], round["worst"], round["mean"], round["clients"]) == (1.0, 2.0, 1.5, 2), "less is better"
    assert round["weighted_mean"] == pytest.approx((2 * 2.0 + 4 * 1.0) / 6)
    before = end["personal_rmse_before"]
    assert (before["best"], before["worst"]) == (3.0, 4.0)
    assert before["weighted_mean"] == pytest.approx((2 * 3.0 + 4 * 4.0) / 6)
    sites = MEASURES["personal"].sites(scene, final)
    np.testing.assert_array_equal(sites["personal_rmse_before"], [math.nan, 4.0, math.nan, 3.0])
    np.testing.assert_array_equal(sites["personal_rmse"], [math.nan, 1.0, math.nan, 2.0])
    scene.problem = ACCURACY
    shares = MEASURES["personal"].round(scene, SimpleNamespace(replies=replies))["personal"]  # type: ignore[arg-type]
    assert (shares["best"], shares["worst"]) == (4.0, 1.0), "as they are, and more is better"
    nobody: Any = SimpleNamespace(replies=SimpleNamespace(ids=(0,), results=(SimpleNamespace(metrics={}),)))
    assert MEASURES["personal"].round(scene, nobody) == {"personal": {}}
    nobody.replies = SimpleNamespace(ids=(), results=())
    assert MEASURES["personal"].round(scene, nobody) == {}
    assert MEASURES["personal"].summary(scene, [{"personal": round}]) == {}


def test_updates_are_compared_in_what_was_sent() -> None:
    """Of two tensors one stays with the clients. The server went along (1, 0), they went along (3, 4) and (-1, 2)."""
    old = {"w": T([1.0, 1.0]), "own": T([5.0])}
    new = {"w": T([2.0, 1.0]), "own": T([9.0])}
    sent = [{"w": T([4.0, 5.0])}, {"w": T([0.0, 3.0])}]
    replies = SimpleNamespace(has=lambda name: name == "model", each=lambda name: iter(sent))
    moment: Any = SimpleNamespace(replies=replies, old={"model": old}, new={"model": new})
    scene: Any = None
    found = MEASURES["drift"].round(scene, moment)["drift"]
    assert found["clients"] == [0.6, -0.447214], "six digits of each"
    exact = -1 / math.sqrt(5)
    assert (found["mean"], found["lowest"]) == (
        pytest.approx((0.6 + exact) / 2, abs=1e-12),
        pytest.approx(exact, abs=1e-12),
    )
    sent[:] = [{}, {}]
    assert MEASURES["drift"].round(scene, moment) == {}, "nothing of a model was sent"
    replies.has = lambda name: False
    assert MEASURES["drift"].round(scene, moment) == {}


def test_the_end_is_judged_on_the_pool_as_it_is() -> None:
    """Two of three samples are right; mirrored, none would be."""
    logits = T([[0.0, 2.0], [0.0, 3.0], [0.0, 4.0]])
    plain = SimpleNamespace(logits=logits, labels=T([1, 0, 1]))
    mirrored = SimpleNamespace(logits=-logits, labels=T([1, 0, 1]))
    final: Any = SimpleNamespace(predictions=SimpleNamespace(plain=plain, environments=[mirrored, mirrored]))
    scene: Any = SimpleNamespace(
        data=SimpleNamespace(classes=("no", "yes"), num_classes=2), problem=ACCURACY, settings={}
    )
    assert MEASURES["confusion"].end(scene, final) == {
        "confusion": {"classes": ["no", "yes"], "counts": [[0, 1], [0, 2]]}
    }
    found = MEASURES["calibration"].end(scene, final)["calibration"]
    assert (sum(found["count"]), sum(found["correct"])) == (3, 2)
    final.predictions = None
    assert MEASURES["confusion"].end(scene, final) == MEASURES["calibration"].end(scene, final) == {}


def test_who_asks_for_a_matrix_and_for_calibration() -> None:
    def on(name: str, classes: int = 50, problem: str = "classification", **settings: Any) -> bool:
        data = SimpleNamespace(num_classes=classes)
        scene: Any = SimpleNamespace(problem=PROBLEMS[problem], data=data, settings=settings)
        return MEASURES[name].on(scene)

    assert on("confusion")
    assert on("confusion", confusion="auto")
    assert not on("confusion", confusion=False)
    assert not on("confusion", 51)
    assert on("confusion", 51, confusion=True), "to be refused, as it was asked for"
    assert not on("confusion", 3, "multilabel")
    assert on("confusion", 3, "multilabel", confusion=True)
    assert on("calibration")
    assert not on("calibration", calibration=False)
    assert not on("calibration", 3, "multilabel", calibration=True)


def test_local_models_are_judged_in_every_environment_of_the_pool() -> None:
    """Roots 2 and 4 of client 4, 4 and 6 of client 7; what they keep is asked for, and the new state."""
    squares = {4: (4.0, 16.0), 7: (16.0, 36.0)}

    def local_predictor(state: Any, result: Any) -> Any:
        assert (state, result.memory) == ("new", {"kept": result.client})
        return result.client

    def predictions(client: int) -> Any:
        return SimpleNamespace(pool_means=[(square, 99.0) for square in squares[client]])

    class Trained(SimpleNamespace):
        def _replace(self, memory: Any) -> Any:
            return Trained(client=self.client, memory=memory)

    replies = SimpleNamespace(
        ids=(4, 7), results=(Trained(client=4), Trained(client=7)), examples=T([1, 3]), has=lambda name: name == "model"
    )
    scene: Any = SimpleNamespace(
        problem=RMSE, algorithm=SimpleNamespace(local_predictor=local_predictor), predictions=predictions
    )
    moment: Any = SimpleNamespace(replies=replies, old="old", new="new", memory_of=lambda client: {"kept": client})
    found = MEASURES["local_on_global"].round(scene, moment)["local_on_global_rmse"]
    assert (found["best"], found["worst"], found["mean"], found["weighted_mean"]) == (3.0, 5.0, 4.0, None)
    replies.has = lambda name: name == "personal"
    assert "local_on_global_rmse" in MEASURES["local_on_global"].round(scene, moment)
    replies.has = lambda name: False
    assert MEASURES["local_on_global"].round(scene, moment) == {}


def test_the_end_of_a_run_asks_once_and_only_those_who_train() -> None:
    asked: list[Any] = []

    def ask(*given: Any) -> Any:
        asked.append(given)
        return SimpleNamespace(ids=(5, 2), results=(SimpleNamespace(metrics="five"), SimpleNamespace(metrics="two")))

    scene: Any = SimpleNamespace(
        members=[2, 5], settings={}, algorithm=SimpleNamespace(message=lambda state: ("sent", state)), data=range(9)
    )
    predictions: Any = SimpleNamespace(clients=lambda split: f"of {split}")
    state: Any = "last"
    final = Final(scene, state, ask, predictions)
    assert final.trained == {5: "five", 2: "two"}
    assert final.trained is final.trained
    assert asked == [("train", [2, 5], ("sent", "last"))]
    assert final.clients == "of test"
    assert Final(scene, state, ask, None).clients is None
    scene.settings = {"clients": False}
    assert final.clients is None


def test_two_samples_of_a_class_are_enough_to_search() -> None:
    def scene(problem: str, *labels: int) -> Any:
        return SimpleNamespace(
            problem=PROBLEMS[problem],
            data=SimpleNamespace(test_pool=SimpleNamespace(y=T(labels, dtype=torch.int64))),
        )

    MEASURES["map"].check(scene("classification", 0, 1, 1))
    for labels in ((0, 1, 2), ()):
        with pytest.raises(DataError, match="no class has more than one"):
            MEASURES["map"].check(scene("classification", *labels))
    with pytest.raises(ConfigError, match="which regression has not"):
        MEASURES["map"].check(scene("regression", 0, 0))


def test_a_metric_of_each_client_unless_nobody_asks() -> None:
    metric = Metric(lambda logits, labels: float(labels.sum()), "total")
    asked: list[str] = []

    class Predictions:
        environments = (
            SimpleNamespace(logits=T([[0.0]]), labels=T([4])),
            SimpleNamespace(logits=T([[0.0]]), labels=T([8])),
        )

        def clients(self, split: str) -> None:
            asked.append(split)

    moment: Any = SimpleNamespace(predictions=Predictions())
    scene: Any = SimpleNamespace(settings={})
    assert metric.round(scene, moment) == {"total": 6.0}
    assert asked == ["test"]
    scene.settings = {"clients": False}
    metric.round(scene, moment)
    assert asked == ["test"]
    undefined = Metric(lambda logits, labels: math.nan, "undefined")
    assert undefined.round(scene, moment) == {"undefined": None}
    half = Metric(lambda logits, labels: math.nan if int(labels) == 4 else 1.0, "half")
    assert half.round(scene, moment) == {"half": None}, "where it is not defined in one environment, there is no mean"
    for value in (math.inf, -math.inf):
        infinite = Metric(lambda logits, labels, value=value: value, "infinite")
        with pytest.raises(DataError, match=f"metric infinite gave {value}"):
            infinite.round(scene, moment)


def test_a_metric_is_not_asked_about_clients_without_samples() -> None:
    asked: list[list[int]] = []
    metric = Metric(lambda logits, labels: asked.append(labels.tolist()) or float(labels.sum()), "total")
    groups = Groups.of([[0, 1], [], [2]])
    labels = Scores(np.zeros(3), np.zeros(3), T([4, 5, 6]), T([[0.0], [0.0], [0.0]]), torch.zeros(0))
    final: Any = SimpleNamespace(clients=ClientScores(labels, np.array([2, 0, 1]), groups, ACCURACY))
    scene: Any = None
    np.testing.assert_array_equal(metric.sites(scene, final)["total"], [6.0 + 4.0, math.nan, 5.0])
    assert asked == [[6, 4], [5]]
    final.clients = None
    assert metric.sites(scene, final) == {}


def test_what_a_metric_cannot_import_is_told_by_the_extra_that_brings_it() -> None:
    def imports(logits: Any, labels: Any) -> float:
        raise ModuleNotFoundError("No module named 'skiing'", name="skiing")

    scene: Any = SimpleNamespace(problem=ACCURACY, data=SimpleNamespace(num_classes=2))
    with pytest.raises(ConfigError, match=r"evaluate\.mine needs skiing, .* pip install 'accord-fl\[winter\]'"):
        Metric(imports, "mine", extra="winter").check(scene)
    with pytest.raises(ModuleNotFoundError, match="skiing"):
        Metric(imports, "mine").check(scene)


def test_metrics_of_the_package_are_registered_before_a_users(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    class Registry:
        def __len__(self) -> int:
            said.append("all imported")
            return 0

        def add(self, name: str) -> Any:
            return lambda entry: said.append((name, entry.name, entry.better, entry.problems, entry.columns[0].title))

    monkeypatch.setattr(sys.modules[Metric.__module__], "MEASURES", Registry())
    given: dict[str, Any] = {"better": "lower", "percent": True, "title": "Mine", "problems": ("tokens",)}
    assert metric("mine", **given)(f1) is f1
    assert said == ["all imported", ("mine", "mine", "lower", ("tokens",), "Mine %")]


def test_personal_numbers_stand_at_their_own_clients() -> None:
    """Of four clients 1 has no test samples and 2 was not asked; the sums are squared errors."""

    def told(before: float, after: float, examples: int) -> dict[str, Any]:
        return {"personal_before": T(before), "personal_correct": T(after), "personal_examples": T(examples)}

    final: Any = SimpleNamespace(trained={3: told(32.0, 8.0, 2), 1: {"loss": T(1.0)}, 0: told(27.0, 3.0, 3)})
    scene: Any = SimpleNamespace(problem=RMSE, data=range(4))
    columns = MEASURES["personal"].sites(scene, final)
    np.testing.assert_allclose(columns["personal_rmse_before"], [3.0, np.nan, np.nan, 4.0])
    np.testing.assert_allclose(columns["personal_rmse"], [1.0, np.nan, np.nan, 2.0])
    found = MEASURES["personal"].end(scene, final)["personal_rmse"]
    assert (found["best"], found["worst"], found["mean"]) == pytest.approx((1.0, 2.0, 1.5))
    assert found["weighted_mean"] == pytest.approx((3 * 1.0 + 2 * 2.0) / 5)


def test_local_models_are_summed_up_by_their_last_round() -> None:
    scene: Any = SimpleNamespace(problem=RMSE)
    records = [{"local_on_global_rmse": {"mean": 2}}, {}, {"local_on_global_rmse": {"mean": 1}}]
    assert MEASURES["local_on_global"].summary(scene, records) == {"local_on_global_rmse": {"mean": 1}}
    assert MEASURES["local_on_global"].summary(scene, [{}]) == {}


def test_a_matrix_is_for_fifty_classes_at_most() -> None:
    def scene(problem: str, classes: int) -> Any:
        return SimpleNamespace(problem=PROBLEMS[problem], data=SimpleNamespace(num_classes=classes))

    MEASURES["confusion"].check(scene("classification", 50))
    with pytest.raises(ConfigError, match="at most 50 classes, not 51 classes"):
        MEASURES["confusion"].check(scene("classification", 51))
    with pytest.raises(ConfigError, match="not regression"):
        MEASURES["confusion"].check(scene("regression", 1))
    # truth 0, 0, 1; said 1, 0, 1: rows are the truth
    assert confusion_matrix(T([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), T([0, 0, 1])).tolist() == [[1, 1], [0, 1]]


def test_a_map_of_features_is_for_as_many_classes_as_a_byte_holds_and_a_global_model() -> None:
    def scene(problem: str, classes: int, has_global_model: bool = True, **local: Any) -> Any:
        task = LocalTraining(tiny_model(), (SampleLoss(),), **local)
        algorithm = SimpleNamespace(has_global_model=has_global_model, tasks={"train": task})
        data = SimpleNamespace(num_classes=classes)
        return SimpleNamespace(problem=PROBLEMS[problem], data=data, algorithm=algorithm)

    for name, words in (
        ("feature_map", "this method has no such model"),
        ("local_view", "needs a method with a global"),
    ):
        MEASURES[name].check(scene("classification", 256))
        for wrong in (scene("classification", 257), scene("regression", 1), scene("multilabel", 3)):
            with pytest.raises(ConfigError, match=f"evaluate.{name} is for classification with at most 256 classes"):
                MEASURES[name].check(wrong)
        with pytest.raises(ConfigError, match=words):
            MEASURES[name].check(scene("classification", 3, has_global_model=False))
    with pytest.raises(ConfigError, match="whose clients send all of theirs"):
        MEASURES["local_view"].check(scene("classification", 3, personal=frozenset({"head.bias"})))
    other = scene("classification", 3)
    other.algorithm.tasks = {}
    with pytest.raises(ConfigError, match="whose clients send all of theirs"):
        MEASURES["local_view"].check(other)


def test_a_metric_is_tried_before_the_run_on_a_few_samples_and_on_one() -> None:
    tried: list[Any] = []

    def noted(logits: Any, labels: Any) -> float:
        tried.append((tuple(logits.shape), labels.tolist()))
        labels.fill_(9)  # what one does to its copies is no concern of the next
        return 0.0

    def scene(problem: str, classes: int, y: Any) -> Any:
        data = SimpleNamespace(num_classes=classes, test_pool=SimpleNamespace(y=T(y)))
        return SimpleNamespace(problem=PROBLEMS[problem], data=data)

    Metric(noted, "noted").check(scene("classification", 3, [2, 2, 2, 2]))
    assert tried == [((3, 3), [0, 1, 2]), ((1, 3), [0])], "one of each class"
    tried.clear()
    Metric(noted, "noted").check(scene("multilabel", 2, [[1, 0], [0, 0], [1, 1]]))
    assert tried == [((2, 2), [[1, 0], [0, 0]]), ((1, 2), [[1, 0]])], "the first two"
    with pytest.raises(ConfigError, match=r"evaluate\.noted is for 2 classes, and the data has 3"):
        Metric(noted, "noted", classes=2).check(scene("classification", 3, [0]))
    with pytest.raises(ConfigError, match=r"evaluate\.noted is not defined for multilabel, only for regression"):
        Metric(noted, "noted", problems=("regression",)).check(scene("multilabel", 2, [[1, 0]]))


def test_scores_of_classes_by_hand() -> None:
    logits, labels = T([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), T([0, 1, 1])
    # class 0: TP 1, FP 1; class 1: TP 1, FN 1; class 2 is neither there nor said
    assert macro_f1(logits, labels) == pytest.approx(2 / 3)
    assert micro_f1(logits, labels) == pytest.approx(2 / 3)
    assert f1(logits[:, :2], labels) == pytest.approx(2 / 3)
    assert math.isnan(f1(T([[1.0, 0.0]]), T([0])))
    several = T([[1.0, -1.0], [1.0, -1.0]])
    assert micro_f1(several, T([[1, 0], [0, 1]])) == pytest.approx(2 * 1 / 4)
    assert math.isnan(micro_f1(-T([[1.0]]), T([[0]])))
    # a logit of 0 is a half: no likelier than not
    assert micro_f1(T([[0.0, 1.0]]), T([[1, 1]])) == pytest.approx(2 * 1 / 3)
    assert math.isnan(micro_f1(T([[0.0]]), T([[0]])))
    assert macro_f1(several, T([[1, 0], [0, 0]])) == pytest.approx(2 / 3), "of the first label alone"


def test_a_sure_model_that_is_wrong_half_the_time() -> None:
    sure = T([[9.0, -9.0]] * 4, dtype=torch.float64)
    assert ece(sure, T([0, 0, 1, 1])) == pytest.approx(0.5, abs=1e-6)
    # confidence 1/2 lies in the eighth of fifteen bins, 0.9 in another: |1 - 0.5| / 2 + |0 - 0.9| / 2
    logits = T([[0.0, 0.0], [math.log(9.0), 0.0]], dtype=torch.float64)
    assert ece(logits, T([0, 1])) == pytest.approx((0.5 + 0.9) / 2)


def test_of_three_classes_the_largest_probability_is_the_confidence() -> None:
    """Sure to 0.5 and right, sure to 0.7 and wrong: bins 8 and 11 of fifteen, |1 - 0.5| / 2 + |0 - 0.7| / 2."""
    logits = T([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], dtype=torch.float64).log()
    assert ece(logits, T([0, 1])) == pytest.approx((0.5 + 0.7) / 2)
    found = reliability(logits, T([0, 1]))
    assert {place: found["count"][place] for place in range(15) if found["count"][place]} == {7: 1, 10: 1}
    assert [found["correct"][place] for place in (7, 10)] == [1, 0]
    assert [found["confidence"][place] for place in (7, 10)] == [0.5, 0.7]


def test_fifteen_bins_from_the_first_to_the_last() -> None:
    """Of seventeen classes a model may be as unsure as 1/17; the upper edge of a bin belongs to it."""
    for confidence, place in ((1 / 17, 0), (0.1, 1), (0.5, 7), (0.9, 13), (0.93, 13), (0.94, 14), (0.99, 14)):
        rest = (1 - confidence) / 16
        logits = T([[confidence, *[rest] * 16]], dtype=torch.float64).log()
        found = reliability(logits, T([0]))
        assert [n for n, count in enumerate(found["count"]) if count] == [place]
        assert len(found["count"]) == len(found["correct"]) == len(found["confidence"]) == 15
    both = T([[0.9, 0.1], [0.96, 0.04]], dtype=torch.float64).log()
    assert ece(both, T([0, 1])) == pytest.approx((0.1 + 0.96) / 2), "in bins of their own"
    assert ece(both, T([0, 0])) == pytest.approx((0.1 + 0.04) / 2)


def test_directions() -> None:
    reference = {"a": T([1.0, 0.0]), "b": T([0.0])}
    updates = [
        {"a": T([2.0, 0.0]), "b": T([0.0])},
        {"a": T([0.0, 3.0]), "b": T([0.0])},
        {"a": T([-1.0, 0.0]), "b": T([1.0])},
    ]
    assert cosines(updates, reference) == pytest.approx([1.0, 0.0, -(0.5**0.5)])
    zero = {"a": T([0.0, 0.0]), "b": T([0.0])}
    assert cosines([zero], reference) == [0.0]
    # sums run by name: 1e16 - 1e16 + 1 is 1, and 1e16 + 1 - 1e16 is 0
    apart = {"a": T([1e16]), "c": T([1.0]), "b": T([-1e16])}
    assert cosines([apart], {name: T([1.0]) for name in "abc"})[0] > 0
    assert math.isnan(cosines([{"a": T([math.nan, 0.0]), "b": T([0.0])}], reference)[0])
    with pytest.raises(DataError, match="only one of them has b"):
        cosines([{"a": T([1.0, 0.0])}], reference)
    with pytest.raises(DataError, match=r"'a' has shape \(1,\) in one update and \(2,\) in the other"):
        cosines([{"a": T([1.0]), "b": T([0.0])}], reference)
    with pytest.raises(DataError, match="without tensors"):
        cosines([], {})


def holdings(problem: str, y: Any, groups: list[list[int]], classes: int, names: tuple[str, ...] = ()) -> Any:
    train = Groups.of(groups)
    return SimpleNamespace(
        problem=problem,
        train=train,
        test=Groups.of([[0]] * len(groups)),
        sizes=train.sizes,
        train_pool=SimpleNamespace(y=T(y)),
        num_classes=classes,
        classes=names,
        name_of=lambda client: f"site {client}",
        __len__=lambda: len(groups),
    )


class Held(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.train)


@pytest.mark.parametrize(
    ("problem", "y", "classes", "names", "expected"),
    [
        ("classification", [2, 1, 1, 2, 0], 3, ("a", "b", "c"), (["b", "a", ""], [2 / 3, 0.5, None])),
        ("classification", [2, 1, 1, 2, 0], 3, (), (["1", "0", ""], [2 / 3, 0.5, None])),
        ("classification", [2, 1, 1, 2, 0], 3, ("a", "b"), (["1", "0", ""], [2 / 3, 0.5, None])),  # not all have names
        ("classification", [0, 1, 0, 0, 0], 2, ("no", "yes"), (["yes", "yes", ""], [1 / 3, 0.0, None])),
        ("multilabel", [[1, 1], [0, 1], [0, 0], [1, 0], [1, 0]], 2, ("p", "q"), (["q", "p", ""], [2 / 3, 1.0, None])),
        ("regression", [1.0, 2.0, 6.0, 4.0, 5.0], 1, (), (["", "", ""], [3.0, 4.5, None])),
    ],
)
def test_what_a_site_holds(problem: str, y: Any, classes: int, names: tuple[str, ...], expected: Any) -> None:
    data: Any = Held(**vars(holdings(problem, y, [[0, 1, 2], [3, 4], []], classes, names)))
    values = {"later": np.array([1.0, math.nan, 2.0]), PROBLEMS[problem].headline: np.array([0.5, 0.25, 0.125])}
    sites = sites_of(data, values)
    told = "label_mean" if problem == "regression" else "class_share"
    assert sites.columns["class"] == expected[0]
    assert [None if v is None else pytest.approx(v) for v in expected[1]] == sites.columns[told]
    assert sites.columns["samples"] == [3, 2, 0]
    assert sites.columns["test_samples"] == [1, 1, 1]
    assert sites.columns["later"] == [1.0, None, 2.0]
    assert list(sites.columns)[-2:] == [PROBLEMS[problem].headline, "later"], "the leading number first"
    assert sites.row(1)["site"] == "site 1"
    assert [row["client"] for row in sites.rows()] == [0, 1, 2]


def test_leading_numbers_stand_before_all_others() -> None:
    data: Any = Held(**vars(holdings("classification", [0, 1], [[0], [1]], 2)))
    names = ["auroc", "personal_accuracy_before", "personal_accuracy", "accuracy"]
    columns = list(sites_of(data, {name: np.zeros(2) for name in names}).columns)
    assert columns[-4:] == ["accuracy", "personal_accuracy", "personal_accuracy_before", "auroc"]


def test_a_site_with_a_single_sample() -> None:
    for problem, y, told, wanted in (
        ("classification", [2, 0, 0], "class_share", [1.0, 1.0]),
        ("regression", [6.0, 1.0, 4.0], "label_mean", [6.0, 2.5]),
        ("multilabel", [[1, 0, 0], [0, 1, 1], [0, 0, 1]], "class_share", [1.0, 1.0]),
    ):
        data: Any = Held(**vars(holdings(problem, y, [[0], [1, 2]], 3, ("a", "b", "c"))))
        columns = sites_of(data, {}).columns
        assert columns[told] == wanted
        assert (
            columns["class"]
            == {"classification": ["c", "a"], "regression": ["", ""], "multilabel": ["a", "c"]}[problem]
        )
    told_by_clients = {"class": ["x", "y"], "class_share": [0.5, None]}
    assert sites_of(data, {}, told_by_clients).columns["class"] == ["x", "y"]


def test_a_measure_that_others_read_can_be_imported_first() -> None:
    """Registering one imports all the others: they must find what they read of the half imported one."""
    code = "import accord.measures.ece"
    source = str(Path(accord.measures.__file__).parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": source})


def test_a_loss_whose_power_is_no_number() -> None:
    assert _power(0.0) == 1.0
    assert math.isfinite(_power(699.9))
    assert math.isnan(_power(700.0))


def test_what_a_metric_says_of_itself() -> None:
    """What it was given, else the first line of its function's documentation, else its name in words."""

    def far_off(logits: torch.Tensor, labels: torch.Tensor) -> float:
        """How far it is off.

        And more of it.
        """
        return 0.0

    documented, told = Metric(far_off), Metric(far_off, "other", doc="in other words", title="Other")
    plain = Metric(lambda logits, labels: 0.0, "so_many", better="lower", percent=True)
    assert [m.__doc__ for m in (documented, told, plain)] == ["How far it is off.", "in other words", "so many"]
    assert [m.setting.doc for m in (documented, told, plain)] == [m.__doc__ for m in (documented, told, plain)]
    assert [m.setting.name for m in (documented, told, plain)] == ["far_off", "other", "so_many"]
    assert [m.columns[0].title for m in (documented, told, plain)] == ["far off", "Other", "so many %"]
    assert [(c.key, c.title, c.path, c.better, c.compared) for c in plain.columns] == [
        ("so_many", "so many %", ("so_many",), "lower", True),
        ("mean_client_so_many", "mean client so many %", ("client_so_many", "mean"), "lower", False),
        ("worst_client_so_many", "worst client so many %", ("client_so_many", "worst"), "lower", False),
        ("client_so_many_std", "client so many std %", ("client_so_many", "std"), "lower", False),
    ]
    assert [c.write(0.125) for c in plain.columns] == ["12.50"] * 4
    assert documented.columns[0].better == "higher"
