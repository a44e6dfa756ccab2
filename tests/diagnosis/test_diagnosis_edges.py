"""Odd federations: every task, clients of one class or one sample, constant inputs, thousands of clients, bad input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import accord
from accord.core.keys import Key
from accord.data.federated import FederatedData, Groups, Pool
from accord.diagnosis.gathered import CLIENTS, SAMPLES, gathered
from accord.errors import ConfigError, DataError
from support.problems import problem_data
from support.small import federation


def severities(data: FederatedData, **given: object) -> dict[str, str]:
    diagnosis = accord.diagnose(data=data, **{"quick": True, **given})  # type: ignore[arg-type]
    assert str(diagnosis)
    return {finding.name: finding.severity for finding in diagnosis.findings}


@pytest.mark.parametrize("task", ["multilabel", "regression", "tokens"])
def test_every_task_is_looked_over(task: str) -> None:
    data = problem_data(task)
    sets = ["model.name=transformer", "local.lr=0.01"] if task == "tokens" else ["local.lr=0.01"]
    diagnosis = accord.diagnose(data=data, sets=sets)
    assert {"labels", "quantity", "features", "concept", "drift", "rare", "duplicates"} == {
        finding.name for finding in diagnosis.findings
    }
    if task != "multilabel":
        assert f"not defined for task {task}" in diagnosis["rare"].sentence
    if task == "tokens":
        assert diagnosis["concept"].severity == "unknown"
        assert "Not defined for task tokens" in diagnosis["concept"].sentence


def numbers(shift: float, slope: float) -> FederatedData:
    """Six clients; half of them with other numbers, or another law."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1200, 4))
    client = np.arange(1200) % 6
    odd = client % 2 == 1
    y = x[:, 0] * np.where(odd, slope, 1.0) + np.where(odd, shift, 0.0) + rng.normal(0, 0.1, 1200)
    data = accord.from_arrays(x.astype(np.float32), y.astype(np.float32), clients=client, task="regression")
    return accord.federate(data)


def test_a_regression_with_other_laws() -> None:
    calm = severities(numbers(0.0, 1.0))
    assert {calm[name] for name in ("labels", "features", "concept")} == {"none"}
    turned = severities(numbers(0.0, -1.0))
    assert turned["concept"] == "strong"
    assert turned["labels"] == turned["features"] == "none"


def test_clients_with_a_class_each_cannot_be_compared() -> None:
    data = federation([[0] * 30, [1] * 30, [2] * 30])
    found = severities(data)
    assert found["labels"] == found["rare"] == "strong"
    assert found["features"] == found["concept"] == "unknown"


def test_a_sample_each() -> None:
    data = federation([[k % 2] for k in range(60)])
    diagnosis = accord.diagnose(data=data)
    assert diagnosis.found == ()
    assert "a strong skew could hide behind chance" in diagnosis["labels"].sentence
    assert "Fewer than two clients" in diagnosis["features"].sentence
    assert diagnosis["drift"].severity == "unknown"


def test_one_client_and_clients_without_samples() -> None:
    found = severities(federation([[0, 1] * 30]))
    assert found["labels"] == found["quantity"] == "unknown"
    data = federation([[0, 1] * 30, [], [0, 1] * 30])
    diagnosis = accord.diagnose(data=data, quick=True)
    assert diagnosis["quantity"].numbers["without_samples"] == 1
    assert "1 has no training samples" in diagnosis["quantity"].sentence


def test_inputs_that_are_all_the_same() -> None:
    data = federation([[0, 1] * 20] * 3, x=torch.ones(120, 6), test_x=torch.ones(4, 6))
    found = severities(data, quick=False)
    assert found["features"] == "none"
    assert found["duplicates"] == "none"


def test_one_class_in_all_of_it() -> None:
    data = replace(federation([[0] * 30] * 3, test=[0, 0]), num_classes=2)
    diagnosis = accord.diagnose(data=data, quick=True)
    assert diagnosis["labels"].sentence.startswith("All samples have the same label")
    assert diagnosis["concept"].severity == "none"


def test_large_inputs_and_a_large_network_stay_small() -> None:
    x = torch.randint(0, 255, (120, 3, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = federation([[0, 1] * 20] * 3, x=x, test_x=x[:4])
    diagnosis = accord.diagnose(data=data, sets=["model.name=resnet50"])
    assert diagnosis["features"].severity == "none"
    assert "small network on summaries of the inputs" in diagnosis["drift"].sentence


def test_thousands_of_clients_are_drawn_from_and_it_is_said() -> None:
    rng = np.random.default_rng(0)
    count = 3000
    y = torch.from_numpy(rng.integers(0, 3, 5 * count))
    x = torch.from_numpy(rng.normal(size=(5 * count, 4)).astype(np.float32)) + y[:, None]
    groups = Groups.of(np.arange(5 * count).reshape(count, 5))
    empty = Groups.of([[]] * count)
    data = FederatedData("many", Pool(x, y), Pool(x[:9], y[:9]), 3, groups, empty, empty)
    some = gathered(data, Key(0))
    assert len(some.chosen) == CLIENTS
    assert len(some) <= SAMPLES
    diagnosis = accord.diagnose(data=data, quick=True)
    assert diagnosis.found == ()
    assert "1000 clients were counted" in diagnosis["labels"].sentence
    assert f"of {CLIENTS} clients were looked at" in diagnosis["features"].sentence


def test_what_is_no_data_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="data must be made with"):
        accord.diagnose(data=[1, 2, 3])  # type: ignore[arg-type]
    broken = federation([[0, 1] * 5] * 2)
    broken.train_pool.x[3, 0] = float("nan")
    with pytest.raises(DataError, match="1 train samples hold NaN or infinity"):
        accord.diagnose(data=broken)


def test_training_that_diverges_is_said() -> None:
    drift = accord.diagnose(data=federation([[0, 1] * 20] * 3), sets=["local.lr=1e30"])["drift"]
    assert drift.severity == "unknown"
    assert "Lower local.lr and look again" in drift.sentence
