"""Whole runs of every problem: they learn, go on to the bit, and are the same in every executor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import accord
from accord.errors import ConfigError, DataError
from accord.executors.gpu.batched import Batched
from support.problems import CLIENTS, problem_config, problem_data

METHODS = ("fedavg", "scaffold", "ditto", "fedrep")
TASKS = ("multilabel", "regression", "tokens")
# How good the leading number must be: better than a constant answer by far.
GOOD = {"multilabel": 0.8, "regression": 1.2, "tokens": 0.8}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", TASKS)
def test_methods_that_need_only_a_loss_learn(task: str, method: str, tmp_path: Path) -> None:
    fast = ["algorithm.head_epochs=2"] if method == "fedrep" else []
    config = problem_config(task, method, tmp_path, "evaluate.personal=true", *fast)
    outcome = accord.run(config, data=problem_data(task))
    summary, name = outcome.summary, "rmse" if task == "regression" else "accuracy"
    personal = method in ("ditto", "fedrep")
    assert summary["judged_by"] == (f"personal_{name}" if personal else name)
    reached = summary[f"personal_{name}"]["mean"]
    if not personal:
        reached = summary[name]
        spread = summary[f"client_{name}"]
        assert (spread["best"] <= spread["worst"]) == (task == "regression") or spread["best"] == spread["worst"]
    assert reached < GOOD[task] if task == "regression" else reached > GOOD[task]
    losses = [record["loss"] for record in outcome.metrics]
    assert losses[-1] < 0.7 * losses[0]


def test_numbers_of_a_regression_are_those_of_its_model(tmp_path: Path) -> None:
    data = problem_data("regression")
    outcome = accord.run(problem_config("regression", "fedavg", tmp_path), data=data)
    assert outcome.model is not None
    x, y = data.test.take(np.arange(len(data.test)))
    with torch.no_grad():
        errors = (outcome.model(x)[:, 0] - y).double()
    assert outcome.summary["rmse"] == pytest.approx(float(errors.square().mean().sqrt()), rel=1e-5)
    assert outcome.summary["best_rmse"] == min(record["rmse"] for record in outcome.metrics)
    assert outcome.metrics[-1]["test_loss"] == pytest.approx(outcome.summary["rmse"] ** 2, rel=1e-5)
    assert "accuracy" not in outcome.summary
    assert "rounds_to" not in outcome.summary


def test_a_regression_goes_on_to_the_bit(tmp_path: Path) -> None:
    data, sets = problem_data("regression"), ("rounds=3",)
    whole = accord.run(problem_config("regression", "scaffold", tmp_path, *sets, "name=whole"), data=data)

    class Stop(accord.Observer):
        def round_ended(self, round: int, record: object) -> None:
            if round == 2:
                raise KeyboardInterrupt

    config = problem_config("regression", "scaffold", tmp_path, *sets, "name=parts")
    with pytest.raises(KeyboardInterrupt):
        accord.run(config, data=data, observers=[Stop()])
    again = accord.resume(tmp_path / "parts", data=data)
    assert (again.folder / "metrics.jsonl").read_bytes() == (whole.folder / "metrics.jsonl").read_bytes()
    assert whole.model is not None and again.model is not None  # noqa: PT018
    one, two = whole.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("task", TASKS)
def test_executors_agree(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batched, "devices", (*Batched.devices, "cpu"))
    found = {}
    for executor in ("sequential", "processes", "batched"):
        sets = ("rounds=2", f"name={executor}", f"executor={executor}", "workers=2", "device=cpu")
        config = problem_config(task, "fedavg", tmp_path, *sets)
        outcome = accord.run(config, data=problem_data(task))
        assert outcome.model is not None
        found[executor] = outcome.model.state_dict()
    for name, value in found["sequential"].items():
        assert torch.equal(value, found["processes"][name])
        assert torch.allclose(value, found["batched"][name], atol=1e-5)


class Both(nn.Module):
    """A user's network with two inputs, called by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.fc = nn.Embedding(50, 4), nn.Linear(4 + 2, 2)

    def forward(self, code: Tensor, labs: Tensor) -> Tensor:
        assert code.dtype == torch.int64
        assert labs.shape[1:] == (2,)
        out: Tensor = self.fc(torch.cat([self.words(code), labs], 1))
        return out


class Dictionary(Both):
    """The same with one argument."""

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:  # type: ignore[override]
        return super().forward(inputs["code"], inputs["labs"])


def two_inputs() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    code, labs = rng.integers(0, 50, 120), rng.normal(size=(120, 2)).astype(np.float32)
    return {"code": code, "labs": labs}, (code % 2 + (labs[:, 0] > 0) > 1).astype(np.int64), np.arange(120) % CLIENTS


def test_several_inputs_arrive_by_name_or_as_a_dictionary(tmp_path: Path) -> None:
    x, y, owners = two_inputs()
    data = accord.from_arrays(x, y, owners, name="both")
    assert data.train.x.shape[1:] == (3,)
    states = []
    for kind in (Both, Dictionary):
        torch.manual_seed(0)
        network = accord.adapt(kind(), head="fc")
        sets = (f"name={kind.__name__}", "model.name=mlp", "local.lr=0.5", "rounds=8")
        outcome = accord.run(problem_config("classification", "fedavg", tmp_path, *sets), data=data, model=network)
        assert outcome.summary["accuracy"] > 0.8
        assert outcome.model is not None
        with torch.no_grad():  # the trained module takes the inputs as the user has them
            given = {"code": torch.from_numpy(x["code"][:3]), "labs": torch.from_numpy(x["labs"][:3])}
            assert outcome.model(given).shape == (3, 2)
        states.append(outcome.model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_network_by_name_reads_the_row(tmp_path: Path) -> None:
    x, y, owners = two_inputs()
    data = accord.from_arrays({"age": x["labs"][:, 0], "labs": x["labs"]}, y, owners, normalise=True)
    assert accord.run(problem_config("classification", "fedavg", tmp_path, "rounds=1"), data=data).summary["accuracy"]


def test_what_cannot_be_packed() -> None:
    x, y, _ = two_inputs()
    with pytest.raises(DataError, match=r"'code' holds whole numbers from 0 to 16777217: .* 2\^24"):
        accord.from_arrays({"code": np.array([0, 2**24 + 1] * 60), "labs": x["labs"]}, y)
    exact = accord.from_arrays({"code": np.array([2**24, 3] * 60), "labs": x["labs"]}, y, test=(x, y))
    assert exact.fields is not None
    assert exact.fields.unpacked(exact.train.x)["code"][:2].tolist() == [2**24, 3]
    with pytest.raises(DataError, match="a row for every sample"):
        accord.from_arrays({"code": x["code"][:5], "labs": x["labs"]}, y)
    with pytest.raises(DataError, match="same names, shapes"):
        accord.from_arrays(x, y, test=({"code": x["code"]}, y))


def ragged() -> tuple[list[list[int]], np.ndarray]:
    rng = np.random.default_rng(4)
    texts = [rng.integers(1, 8, rng.integers(2, 7)).tolist() for _ in range(160)]
    return texts, np.array([int(7 in text) for text in texts])


def test_texts_of_different_lengths_are_classified(tmp_path: Path) -> None:
    texts, y = ragged()
    data = accord.from_sequences(texts, y, np.arange(160) % CLIENTS, name="texts")
    assert (data.problem, data.train.x.shape[1]) == ("classification", 12)
    sets = ("model.name=transformer", "model.width=8", "model.layers=1", "local.lr=0.3", "rounds=10")
    outcome = accord.run(problem_config("classification", "fedavg", tmp_path, *sets), data=data)
    assert outcome.summary["accuracy"] > 0.85


def test_labels_of_positions_are_padded(tmp_path: Path) -> None:
    texts, _ = ragged()
    tags = [[token % 2 for token in text] for text in texts]
    data = accord.from_sequences(texts, tags, np.arange(160) % CLIENTS, name="tags")
    assert data.problem == "tokens"
    assert data.fields is not None
    parts = data.fields.unpacked(data.train.x)
    assert torch.equal(parts["mask"] > 0, data.train.y != -100)
    assert torch.equal(parts["tokens"][data.train.y >= 0] % 2, data.train.y[data.train.y >= 0])
    outcome = accord.run(problem_config("tokens", "fedavg", tmp_path), data=data)
    assert outcome.summary["accuracy"] > 0.9
    cut = accord.from_sequences(texts, tags, length=3)
    assert cut.train.x.shape[1] == 6
    with pytest.raises(DataError, match=r"y 1 must be a whole number for each of the \d positions"):
        accord.from_sequences(texts, [tags[0], tags[1][:-1], *tags[2:]])


def test_class_weights_are_the_federations(tmp_path: Path) -> None:
    data = problem_data("classification")
    base = ("rounds=1", "evaluate.clients=false")
    built = accord.Federation.build(
        problem_config("classification", "fedavg", tmp_path, *base, "local.class_weights=balanced"), data
    )
    counts = torch.bincount(data.train.y).double()
    expected = len(data.train) / (3 * counts)
    assert built.model.problem.weights == pytest.approx(expected.tolist())
    sets = ("name=given", f"local.class_weights={[round(float(v), 3) for v in expected]}")
    given = accord.run(problem_config("classification", "fedavg", tmp_path, *base, *sets), data=data)
    plain = accord.run(problem_config("classification", "fedavg", tmp_path, *base, "name=plain"), data=data)
    assert given.metrics[0]["loss"] != plain.metrics[0]["loss"]
    config = problem_config("regression", "fedavg", tmp_path, "local.class_weights=balanced")
    with pytest.raises(ConfigError, match="class_weights is for classification and multilabel, not for regression"):
        accord.run(config, data=problem_data("regression"))


def test_the_task_can_be_asked_for(tmp_path: Path) -> None:
    data = problem_data("classification")
    outcome = accord.run(problem_config("classification", "fedavg", tmp_path, "task=regression", "rounds=1"), data=data)
    assert outcome.summary["rmse"] > 0
    with pytest.raises(ConfigError, match="task = 'tokens', but the labels of the data 'classification' are for"):
        accord.run(problem_config("classification", "fedavg", tmp_path, "task=tokens"), data=data)


def test_partitions_by_class_say_which_others_there_are(tmp_path: Path) -> None:
    data = problem_data("regression")
    with pytest.raises(ConfigError, match=r"'dirichlet' deals samples out by their class, and regression has no .*iid"):
        accord.run(problem_config("regression", "fedavg", tmp_path, "partition.name=dirichlet"), data=data)
    for name in ("iid", "quantity"):
        sets = (f"partition.name={name}", "rounds=1", f"name={name}", "partition.validation=0.1")
        outcome = accord.run(problem_config("regression", "fedavg", tmp_path, *sets), data=data)
        assert outcome.summary["validation_rmse"] > 0
