"""Every measure of a run, once more by hand: FedAvg of softmax regression, one full-batch step a round.

Train, validation and test samples are all others (`apart_data`), so a number taken from the wrong ones is another.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import accord
from accord.config import load_config
from accord.data.federated import FederatedData
from support.federation import apart_data
from support.retrieval import naive_map

LR, ROUNDS, EPOCHS = 0.8, 7, 9
MEMBERS, NEWCOMER = (0, 1, 2), 3


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


class Reference(NamedTuple):
    """The runs' weights: before each round and after the last, and each client's after its training in each."""

    data: FederatedData
    models: list[list[Tensor]]
    local: list[list[list[Tensor]]]

    def logits(self, model: list[Tensor], x: Tensor) -> Tensor:
        return torch.tanh(x @ model[0].T + model[1]) @ model[2].T + model[3]

    def step(self, model: list[Tensor], client: int) -> list[Tensor]:
        x, y = (t[torch.as_tensor(self.data.train[client])] for t in (self.data.train_pool.x, self.data.train_pool.y))
        leaves = [p.clone().requires_grad_() for p in model]
        loss = -torch.log_softmax(self.logits(leaves, x), 1)[torch.arange(len(y)), y].mean()
        grads = torch.autograd.grad(loss, leaves)
        return [p - LR * g for p, g in zip(model, grads, strict=True)]

    def accuracy(self, model: list[Tensor], x: Tensor, y: Tensor) -> float:
        rows = self.logits(model, x).tolist()
        return fmean(float(row.index(max(row)) == label) for row, label in zip(rows, y.tolist(), strict=True))

    def samples(self, client: int, split: str) -> tuple[Tensor, Tensor]:
        groups = {"train": self.data.train, "validation": self.data.validation, "test": self.data.test}[split]
        pool = self.data.test_pool if split == "test" else self.data.train_pool
        rows = torch.as_tensor(groups[client])
        return pool.x[rows], pool.y[rows]

    def for_clients(self, models: list[list[Tensor]], split: str = "test") -> list[float]:
        """Accuracies of the members' models on their own samples."""
        return [self.accuracy(m, *self.samples(k, split)) for k, m in zip(MEMBERS, models, strict=True)]


def reference() -> Reference:
    data = apart_data()
    ours = Reference(data, [[p.detach().clone() for p in network().parameters()]], [])
    sizes = [len(data.train[k]) for k in MEMBERS]
    for _ in range(ROUNDS):
        trained = [ours.step(ours.models[-1], k) for k in MEMBERS]
        mean = [
            sum(n / sum(sizes) * t for n, t in zip(sizes, leaf, strict=True)) for leaf in zip(*trained, strict=True)
        ]
        ours.local.append(trained)
        ours.models.append(mean)  # type: ignore[arg-type]
    return ours


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Reference]]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    sets = [
        *(f"rounds={ROUNDS}", "local.batch_size=0", f"local.lr={LR}", "clients.fraction=1.0", "executor=sequential"),
        *(f"out={tmp_path_factory.mktemp('runs')}", "partition.clients=4", "partition.unseen=1", "targets=[0.3,0.99]"),
        *("evaluate.personal=true", "evaluate.drift=true", "evaluate.map=true", "evaluate.local_on_global=true"),
        *(f"evaluate.unseen_epochs={EPOCHS}", "evaluate.balanced_accuracy=true", "evaluate.macro_f1=true"),
        *("evaluate.batch_size=10", "evaluate.training=true", "evaluate.feature_map=5", "evaluate.local_view=5"),
    ]
    try:
        outcome = accord.run(load_config(None, sets), data=apart_data(), model=accord.adapt(network(), head="2"))
        yield outcome, reference()
    finally:
        torch.set_default_dtype(before)


def spread_is(found: dict[str, Any], values: list[float], sizes: list[int]) -> None:
    assert (found["best"], found["worst"]) == (pytest.approx(max(values)), pytest.approx(min(values)))
    assert (found["mean"], found["std"]) == (pytest.approx(fmean(values)), pytest.approx(pstdev(values)))
    weighted = sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)
    assert found["weighted_mean"] == pytest.approx(weighted)
    assert abs(weighted - fmean(values)) > 1e-6, "weights must show"


def test_accuracy_and_loss_are_means_over_the_environments_of_the_test_pool(both: Any) -> None:
    outcome, ours = both
    x, y = ours.data.test_pool.x, ours.data.test_pool.y
    for record, model in zip(outcome.metrics, ours.models[1:], strict=True):
        plain, mirrored = ours.accuracy(model, x, y), ours.accuracy(model, -x, y)
        assert record["environments"] == {"test": pytest.approx(plain), "mirrored": pytest.approx(mirrored)}
        assert record["accuracy"] == pytest.approx((plain + mirrored) / 2)
        losses = [-torch.log_softmax(ours.logits(model, z), 1)[torch.arange(len(y)), y].mean() for z in (x, -x)]
        assert record["test_loss"] == pytest.approx(float(sum(losses)) / 2)
        train = torch.as_tensor(np.concatenate([ours.data.train[k] for k in MEMBERS]))
        seen = ours.accuracy(model, ours.data.train_pool.x[train], ours.data.train_pool.y[train])
        assert abs(seen - plain) > 0.05, "train and test must differ"


def test_what_a_summary_reads_off_the_curve(both: Any) -> None:
    outcome, ours = both
    x, y = ours.data.test_pool.x, ours.data.test_pool.y
    curve = [(ours.accuracy(m, x, y) + ours.accuracy(m, -x, y)) / 2 for m in ours.models[1:]]
    five = sorted(curve)[-5:]
    assert len({round(fmean(v), 9) for v in (five, sorted(curve)[-1:], curve)}) == 3, "all of these must differ"
    summary = outcome.summary
    assert summary["accuracy"] == pytest.approx(curve[-1])
    assert summary["best_accuracy"] == pytest.approx(max(curve))
    assert summary["top5_accuracy"] == pytest.approx(fmean(five))
    first = next(number for number, value in enumerate(curve, start=1) if value >= 0.3)
    assert summary["rounds_to"] == {"0.3": first, "0.99": None}
    assert summary["judged_by"] == "accuracy"


def test_the_global_model_for_the_clients(both: Any) -> None:
    outcome, ours = both
    everyone = [*MEMBERS, NEWCOMER]
    for record, model in zip(outcome.metrics, ours.models[1:], strict=True):
        values = [ours.accuracy(model, *ours.samples(k, "test")) for k in everyone]
        spread_is(record["clients"], values, [len(ours.data.test[k]) for k in everyone])
    last = outcome.metrics[-1]["clients"]
    assert outcome.summary["client_accuracy"] == {name: last[name] for name in ("best", "worst", "mean", "std")}


def test_validation_counts_every_sample_the_same(both: Any) -> None:
    outcome, ours = both
    sizes = [len(ours.data.validation[k]) for k in MEMBERS]
    unweighted = 0
    for record, model in zip(outcome.metrics, ours.models[1:], strict=True):
        values = ours.for_clients([model] * 3, "validation")
        expected = sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)
        assert record["validation_accuracy"] == pytest.approx(expected)
        unweighted += abs(expected - fmean(values)) > 0.01
    assert unweighted, "weights must show"
    assert outcome.summary["validation_accuracy"] == outcome.metrics[-1]["validation_accuracy"]


def test_training_accuracy_counts_every_sample_of_those_who_train(both: Any) -> None:
    outcome, ours = both
    sizes = [len(ours.data.train[k]) for k in MEMBERS]
    for record, model in zip(outcome.metrics, ours.models[1:], strict=True):
        values = ours.for_clients([model] * 3, "train")
        expected = sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)
        assert record["training_accuracy"] == pytest.approx(expected)
    newcomer = ours.accuracy(ours.models[-1], *ours.samples(NEWCOMER, "train"))
    assert newcomer != pytest.approx(expected), "a newcomer's data must show"
    assert outcome.summary["training_accuracy"] == outcome.metrics[-1]["training_accuracy"]


def test_clients_models_answer_after_one_more_training(both: Any) -> None:
    outcome, ours = both
    x, y = ours.data.test_pool.x, ours.data.test_pool.y
    view = outcome.summary["local_view"]
    for client in MEMBERS:
        rows = ours.logits(ours.step(ours.models[-1], client), x).tolist()
        said = [row.index(max(row)) for row in rows]
        assert view["answers"][str(client)] == [round(said.count(c) / len(said), 5) for c in range(3)]
    labels = [int(y[round(place * (len(y) - 1) / 4)]) for place in range(5)]
    assert base64.b64decode(view["map"]["labels"]) == bytes(labels)
    assert len(base64.b64decode(view["map"]["points"])) == 2 * 2 * 5  # two models, two coordinates
    assert view["map"]["client"] == 0
    assert view["map"]["held"] == sorted(set(ours.samples(0, "train")[1].tolist()))
    assert base64.b64decode(outcome.summary["feature_map"]["labels"]) == bytes(labels)
    assert len(base64.b64decode(outcome.summary["feature_map"]["points"])) == 2 * 5


def test_drift_is_the_cosine_with_the_servers_step(both: Any) -> None:
    outcome, ours = both
    for round, record in enumerate(outcome.metrics):
        old, new = (torch.cat([p.flatten() for p in m]) for m in (ours.models[round], ours.models[round + 1]))
        found = []
        for trained in ours.local[round]:
            update = torch.cat([p.flatten() for p in trained]) - old
            found.append(
                float(update @ (new - old)) / math.sqrt(float(update @ update) * float((new - old) @ (new - old)))
            )
        spread = {"mean": pytest.approx(fmean(found)), "lowest": pytest.approx(min(found))}
        assert record["drift"] == {**spread, "clients": pytest.approx(found, abs=1e-6)}
        assert fmean(found) > 0.2, "clients pull where their mean goes"


def test_retrieval_is_by_features(both: Any) -> None:
    outcome, ours = both
    x, y = ours.data.test_pool.x, ours.data.test_pool.y
    model = ours.models[-1]
    features = torch.tanh(x @ model[0].T + model[1])
    assert outcome.summary["map"] == outcome.metrics[-1]["map"] == pytest.approx(naive_map(features, y))
    assert abs(naive_map(ours.logits(model, x), y) - naive_map(features, y)) > 1e-3, "logits must find others"


def test_local_models_on_the_whole_test_set(both: Any) -> None:
    outcome, ours = both
    x, y = ours.data.test_pool.x, ours.data.test_pool.y
    for record, trained in zip(outcome.metrics, ours.local, strict=True):
        values = [(ours.accuracy(model, x, y) + ours.accuracy(model, -x, y)) / 2 for model in trained]
        found = record["local_on_global"]
        assert (found["best"], found["worst"]) == (pytest.approx(max(values)), pytest.approx(min(values)))
        assert (found["mean"], found["weighted_mean"]) == (pytest.approx(fmean(values)), None)


def test_personal_accuracy_is_of_the_trained_model_on_test_data(both: Any) -> None:
    outcome, ours = both
    sizes = [len(ours.data.test[k]) for k in MEMBERS]
    others = 0
    for record, trained in zip(outcome.metrics, ours.local, strict=True):
        values = ours.for_clients(trained)
        spread_is(record["personal"], values, sizes)
        others += ours.for_clients(trained, "train") != values
    assert others == ROUNDS, "train data must give other numbers"
    final = ours.models[-1]
    before, after = [final] * 3, [ours.step(final, k) for k in MEMBERS]
    spread_is(outcome.summary["personal_accuracy_before"], ours.for_clients(before), sizes)
    spread_is(outcome.summary["personal_accuracy"], ours.for_clients(after), sizes)
    assert fmean(ours.for_clients(before)) != fmean(ours.for_clients(after)), "training must show"


def test_a_newcomer_before_and_after_each_epoch(both: Any) -> None:
    outcome, ours = both
    model, curve = ours.models[-1], []
    for _ in range(EPOCHS + 1):
        curve.append(ours.accuracy(model, *ours.samples(NEWCOMER, "test")))
        model = ours.step(model, NEWCOMER)
    assert outcome.summary["unseen"] == {"clients": 1, "accuracy_after_epochs": pytest.approx(curve)}
    assert curve[0] != curve[-1], "training must show"
    assert all(NEWCOMER not in record["cohort"] for record in outcome.metrics)


def by_class(rows: list[list[float]], labels: list[int]) -> tuple[list[float], list[float]]:
    """Recall of each class that occurs; F1 of each that occurs or is predicted."""
    said = [row.index(max(row)) for row in rows]
    recalls, scores = [], []
    for label in range(3):
        both = sum(s == label and t == label for s, t in zip(said, labels, strict=True))
        occurs, predicted = labels.count(label), said.count(label)
        if occurs:
            recalls.append(both / occurs)
        if occurs or predicted:
            precision, recall = both / predicted if predicted else 0.0, both / occurs if occurs else 0.0
            scores.append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
    return recalls, scores


@pytest.mark.parametrize(("name", "which"), [("balanced_accuracy", 0), ("macro_f1", 1)])
def test_metrics_of_all_and_of_each_client(both: Any, name: str, which: int) -> None:
    outcome, ours = both
    x, y = ours.data.test_pool.x, ours.data.test_pool.y
    model = ours.models[-1]
    record = outcome.metrics[-1]
    values = [fmean(by_class(ours.logits(model, z).tolist(), y.tolist())[which]) for z in (x, -x)]
    assert record[name] == outcome.summary[name] == pytest.approx(fmean(values))
    assert record[name] != pytest.approx(record["accuracy"])
    clients = []
    for client in range(4):
        own_x, own_y = ours.samples(client, "test")
        clients.append(fmean(by_class(ours.logits(model, own_x).tolist(), own_y.tolist())[which]))
    spread_is(record[f"clients_{name}"], clients, [len(ours.data.test[k]) for k in range(4)])
    assert outcome.summary[f"client_{name}"]["worst"] == pytest.approx(min(clients))
