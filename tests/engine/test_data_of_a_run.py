"""What a run does to its data before it begins: what it refuses, pools, and judges on."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.config import load_config
from accord.data.federated import FederatedData, Groups, Pool
from accord.engine.build import check_data, judged_on_validation, pooled
from accord.engine.federation import Federation
from accord.engine.hosting import _Simulated
from accord.errors import ConfigError, DataError


def clients(*train: list[int], validation: list[list[int]] | None = None, unseen: int = -1) -> FederatedData:
    """Six samples, whose inputs are their positions."""
    pool = Pool(torch.arange(6.0).reshape(6, 1), torch.tensor([0, 1] * 3))
    nothing = Groups.of([[]] * len(train))
    held = Groups.of(validation) if validation else nothing
    newcomers = frozenset({unseen} - {-1})
    return FederatedData("x", pool, pool, 2, Groups.of(list(train)), held, nothing, unseen=newcomers)


def test_one_client_with_one_sample_is_enough() -> None:
    check_data(clients([3], []))
    with pytest.raises(DataError, match="no client has training data"):
        check_data(clients([], []))


def test_samples_that_are_no_numbers_are_counted_and_named() -> None:
    data = clients([0])
    x = data.train_pool.x.clone()
    x[2], x[5] = math.nan, math.inf
    for name in ("train", "test"):
        broken = replace(data, **{f"{name}_pool": Pool(x, data.train_pool.y)})
        with pytest.raises(DataError, match=f"2 {name} samples hold NaN or infinity, the first at position 2"):
            check_data(broken)
        empty = replace(data, **{f"{name}_pool": Pool(x[:0], data.train_pool.y[:0])})
        with pytest.raises(DataError, match=f"the {name} data is empty"):
            check_data(empty)


def test_pooled_clients_are_one_without_the_newcomers() -> None:
    one = pooled(clients([5, 1], [2], [0, 4], unseen=1))
    assert len(one) == 1
    assert one.train[0].tolist() == [0, 1, 4, 5]
    assert len(one.validation[0]) == len(one.test[0]) == 0
    assert one.unseen == frozenset()
    named = replace(clients([5, 1], [2]), names=("Aix", "Lyon"))
    assert pooled(named).names == (), "it is neither of them"
    with pytest.raises(ConfigError, match="cannot pool clients that see transformed inputs"):
        pooled(replace(clients([0]), transform=lambda x, y, client, index: x))


def test_judged_on_validation_samples_in_the_place_of_tests() -> None:
    data = clients([0], [1], [], validation=[[4], [3, 2], [5]], unseen=2)
    judged = judged_on_validation(data)
    assert judged.test_pool.x.flatten().tolist() == [2.0, 3.0, 4.0], "in order, without the newcomer's"
    assert [part.tolist() for part in (judged.test[0], judged.test[1])] == [[4], [3, 2]]
    assert judged.test_from == "train"
    assert not np.any(judged.validation.sizes)
    alone = clients([0], [1], validation=[[], [5]], unseen=1)
    with pytest.raises(DataError, match="no client has validation data"):
        judged_on_validation(alone)


def test_data_that_is_divided_already_must_be_for_the_task_that_is_asked() -> None:
    divided = clients([0, 1, 2], [3, 4, 5])
    sets = ["executor=sequential", "device=cpu", "model.name=mlp", "model.hidden=[2]"]
    assert Federation.build(load_config(sets=[*sets, "task=classification"]), divided).facts.num_classes == 2
    with pytest.raises(ConfigError, match="regression"):
        Federation.build(load_config(sets=[*sets, "task=regression"]), divided)


def test_a_simulations_rehearsal_is_one_and_its_rounds_are_not() -> None:
    asked: list[tuple[int, dict[str, Any]]] = []
    federation: Any = SimpleNamespace(
        config=SimpleNamespace(rounds=9), exchange=lambda executor, store, round, **how: asked.append((round, how))
    )
    house = _Simulated(federation, "executor", "store", "clock")  # type: ignore[arg-type]
    house.rehearsal()
    house.exchange(3)
    house.start()
    assert asked == [(9, {"rehearsal": True}), (3, {"clock": "clock"}), (0, {"clock": "clock"})]


def test_a_simulation_tells_what_its_clients_keep_and_ends_with_its_executor() -> None:
    closed: list[bool] = []
    kept = {2: {"own": {"w": torch.ones(1)}}}
    federation: Any = SimpleNamespace(device=torch.device("cpu"), world=lambda round, clock: (round, clock))
    clock, executor = SimpleNamespace(trees=lambda: {"time": {}}), SimpleNamespace(close=lambda: closed.append(True))
    house = _Simulated(federation, executor, SimpleNamespace(get=kept.get), clock)  # type: ignore[arg-type]
    assert house.memory_of(2) == kept[2]
    assert house.memory_of(1) == {}
    assert house.under_way() == {"time": {}}
    assert house.world(4) == (4, clock)  # type: ignore[comparison-overlap]
    house.settled(1)
    assert closed == []
    house.close()
    assert closed == [True]
