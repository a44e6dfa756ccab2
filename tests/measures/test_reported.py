"""What is made of sums that clients report, and of a privacy budget: by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.data.federated import FederatedData, Groups, Pool
from accord.errors import ConfigError
from accord.measures.privacy import Epsilon
from accord.measures.reported import Reported, check_possible


def reported() -> Reported:
    """Four clients; the second has no test samples, the last did not answer."""
    nothing = Groups.of([[]] * 4)
    pool = Pool(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))
    data = FederatedData("x", pool, pool, 2, nothing, nothing, nothing)
    told = {0: (3.0, 2.0, 4), 1: (0.0, 0.0, 0), 2: (3.0, 10.0, 12)}
    scores = {
        client: {"correct": torch.tensor(right), "loss": torch.tensor(loss), "examples": torch.tensor(count)}
        for client, (right, loss, count) in told.items()
    }
    return Reported(data, scores)


def test_every_sample_counts_the_same() -> None:
    assert reported().pool_means == [(6 / 16, 12 / 16)]


def test_each_client_has_its_own_mean_or_none() -> None:
    found = reported().clients("test")
    assert found is not None
    assert found.sizes.tolist() == [4, 0, 12, 0]
    np.testing.assert_array_equal(found.means, [0.75, math.nan, 0.25, math.nan])
    assert reported().clients("validation") is None


@pytest.mark.parametrize("asked", [True, False])
def test_what_needs_the_samples_is_refused_where_it_was_asked_for(asked: bool) -> None:
    possible: Any = SimpleNamespace(name="drift")
    other: Any = SimpleNamespace(name="auroc")
    assert check_possible(possible, asked)
    if asked:
        with pytest.raises(ConfigError, match=r"evaluate\.auroc needs all test samples in one place"):
            check_possible(other, asked)
    else:
        assert not check_possible(other, asked)


@pytest.mark.parametrize("name", ["accuracy", "clients", "personal", "drift", "validation", "epsilon"])
def test_what_is_made_of_reports_or_of_what_the_server_has(name: str) -> None:
    measure: Any = SimpleNamespace(name=name)
    assert check_possible(measure, asked=True)


def test_a_budget_is_spent_round_by_round() -> None:
    """Rounds are counted from 0: after the third, three are spent."""
    budget = SimpleNamespace(spent=lambda rounds: 0.5 * rounds, facts=lambda: {"delta": 1e-5})
    scene: Any = SimpleNamespace(budget=budget)
    moment: Any = SimpleNamespace(round=2)
    assert Epsilon().on(scene)
    assert not Epsilon().on(SimpleNamespace(budget=None))  # type: ignore[arg-type]
    assert Epsilon().round(scene, moment) == {"epsilon": 1.5}
    summary = Epsilon().summary(scene, [{"round": 1, "epsilon": 0.5}, {"round": 2, "epsilon": 1.0}])
    assert summary == {"epsilon": 1.0, "privacy": {"delta": 1e-5}}
