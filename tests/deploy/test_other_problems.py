"""Models that answer with numbers or labels, and those that take several inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import accord
from accord.core.fields import Field, Fields
from accord.core.types import Facts
from accord.data.federated import FederatedData, Groups, Pool
from accord.data.inputs import Inputs
from accord.data.own.sequences import padded
from accord.deploy.answers import Answers
from accord.deploy.facts import facts_of, packed
from accord.deploy.samples import Samples, answers_table
from accord.errors import ConfigError, DataError
from support.leaving import finished

FIELDS = Fields((Field("age", (1,)), Field("words", (2,), vocabulary=9)))


def numbers(problem: str, classes: tuple[str, ...]) -> FederatedData:
    rng = np.random.default_rng(0)
    pools = []
    for count in (48, 20):
        x = rng.normal(size=(count, 3))
        y = x @ np.array([[1.0, 0.0], [0.5, -1.0], [0.0, 2.0]])
        labels = torch.tensor(y).float() if problem == "regression" else torch.tensor((y > 0).astype(np.int64))
        pools.append(Pool(torch.tensor(x).float(), labels, (0.1, 0.2, 0.3), (1.0, 2.0, 3.0)))
    train, test = (Groups.by_id(np.arange(len(pool)) % 4, 4) for pool in pools)
    nothing = Groups.of([[]] * 4)
    return FederatedData("numbers", *pools, 2, train, nothing, test, classes=classes, problem=problem)


@pytest.mark.parametrize("problem", ["regression", "multilabel"])
def test_numbers_and_labels(tmp_path: Path, problem: str) -> None:
    data = numbers(problem, ("left", "right"))
    outcome = finished(tmp_path, data=data)
    model = accord.load(outcome.folder)
    raw = data.test_pool.x.numpy()
    x = (data.test_pool.x - torch.tensor([0.1, 0.2, 0.3])) / torch.tensor([1.0, 2.0, 3.0])
    assert outcome.model is not None
    outputs = outcome.model(x).detach()
    lines = answers_table(model, Samples(raw[:1], ["first"], [])).splitlines()
    if problem == "regression":
        np.testing.assert_allclose(np.array(model.predict(raw)), outputs.numpy(), rtol=1e-5, atol=1e-6)
        with pytest.raises(ConfigError, match="no probabilities"):
            model.probabilities(raw)
        error = float((outputs - data.test_pool.y).square().mean().sqrt())
        assert error == pytest.approx(outcome.summary["rmse"], rel=1e-5)
        assert lines[0] == "sample,left,right"
    else:
        wanted = [[n for n, one in zip(("left", "right"), row, strict=True) if one > 0] for row in outputs.tolist()]
        assert model.predict(raw) == wanted
        torch.testing.assert_close(model.probabilities(raw), outputs.sigmoid())
        assert lines[0] == "sample,predicted,p(left),p(right)"
    assert lines[1].startswith("first,")


def test_several_inputs_are_given_by_name() -> None:
    class Both(torch.nn.Module):
        takes_fields = True

        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
            assert given["words"].dtype == torch.int64
            return self.scale * torch.cat([given["age"], given["words"].sum(1, keepdim=True).float()], 1)

    inputs, answers = Inputs("array", (3,)), Answers("regression", ["age", "sum"], 2)
    model = accord.Loaded(Both(), inputs, answers, torch.float32, facts=Facts((3,), 2, np.ones(1, int), fields=FIELDS))
    assert model.predict({"age": [[30.5], [2.0]], "words": [[1, 2], [3, 8]]}) == [[30.5, 3.0], [2.0, 11.0]]
    whole = torch.nn.Linear(3, 2)  # takes rows as they are packed
    model = accord.Loaded(whole, inputs, answers, torch.float32, facts=Facts((3,), 2, np.ones(1, int), fields=FIELDS))
    row = torch.tensor([[30.5, 1.0, 2.0]])
    assert torch.equal(model.compute(row), whole(row))
    for raw, match in (
        ([[1, 2, 3]], "give a mapping with age, words"),
        ({"age": [[1.0]]}, "there is no input 'words'"),
        ({"age": [[1.0]], "words": [[1, 2, 3]]}, r"'words' must be \[N, 2\]"),
        ({"age": [[1.0], [2.0]], "words": [[1, 2]]}, "of the same N samples"),
        ({"age": [[1.0]], "words": [[1, 9]]}, "token ids from 1 to 9; known are 0 to 8"),
    ):
        with pytest.raises(DataError, match=match):
            packed(FIELDS, raw)


class Risk(nn.Module):
    """Two inputs, as arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.codes, self.fc = nn.Embedding(5, 3), nn.Linear(3 + 2, 2)

    def forward(self, diagnosis: torch.Tensor, labs: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.cat([self.codes(diagnosis), labs], 1))


def test_an_own_network_of_several_inputs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    several = {"diagnosis": rng.integers(0, 5, 60), "labs": rng.normal(size=(60, 2)).astype(np.float32)}
    data = accord.from_arrays(several, several["diagnosis"] % 2, clients=np.arange(60) % 4, classes=["no", "yes"])
    outcome = finished(tmp_path, "partition.test=auto", data=data, model=accord.adapt(Risk(), head="fc"))
    model = accord.load(outcome.folder, network=Risk())
    assert outcome.model is not None
    given = {"diagnosis": torch.tensor([1, 4]), "labs": torch.zeros(2, 2)}
    torch.testing.assert_close(model(given), outcome.model(given))
    with pytest.raises(ConfigError, match=r"several inputs \(diagnosis, labs\)"):
        accord.export(outcome.folder, torch_export=tmp_path / "x.pt2", network=Risk())
    assert set(model.predict({"diagnosis": [0, 3], "labs": [[0.0, 1.0], [2.0, 3.0]]})) <= {"no", "yes"}


@pytest.mark.parametrize("kind", ["tags", "topics"])
def test_texts_of_different_lengths(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    texts = [rng.integers(1, 9, rng.integers(2, 6)).tolist() for _ in range(60)]
    tags = [[token % 2 for token in text] for text in texts] if kind == "tags" else [len(text) % 2 for text in texts]
    data = accord.from_sequences(texts, tags, clients=np.arange(60) % 4, classes=["odd", "even"])
    sets = ("model.name=transformer", "model.width=4", "partition.test=auto")
    outcome = finished(tmp_path, *sets, data=data)
    model = accord.load(outcome.folder)
    answers = model.predict(texts[:3])
    if kind == "tags":
        assert [len(answer) for answer in answers] == [len(text) for text in texts[:3]]
    assert outcome.model is not None
    tokens, mask = padded(texts[:3], 5, "text")
    torch.testing.assert_close(model(texts[:3]), outcome.model({"tokens": tokens, "mask": mask}))
    with pytest.raises(DataError, match="token ids from 3 to 99; known are 0 to 8"):
        model.predict([[99, 3, 4, 5, 6]])


def test_facts_that_lie() -> None:
    record = {"inputs": {"shape": [3]}, "outputs": 2, "problem": "regression"}
    good = {"vocabulary": 0, "fields": [{"name": "a", "shape": [3], "vocabulary": 0}]}
    assert facts_of({**record, "facts": good}).fields == Fields((Field("a", (3,)),))
    for broken, match in (
        ({**good, "vocabulary": -1}, "vocabulary"),
        ({**good, "fields": []}, "fields"),
        ({**good, "fields": ["a"]}, "an input must be an object"),
        ({**good, "fields": [{"name": "a", "shape": [1 << 40], "vocabulary": 0}]}, "shape"),
        ({**good, "more": 1}, "unknown field"),
    ):
        with pytest.raises(DataError, match=match):
            facts_of({**record, "facts": broken})
