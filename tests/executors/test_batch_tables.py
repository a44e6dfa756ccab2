"""A block's batches laid out on the device: every lane, step and draw in its place, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from accord.client import Work
from accord.executors.gpu.lane import Client
from accord.executors.gpu.tables import Tables

X = torch.arange(10.0).view(10, 1) * 10  # sample i is 10 i
Y = torch.arange(10) + 100
ROWS = [np.array([3, 4, 5]), np.array([7, 8])]  # where the two clients' samples lie


def clients() -> list[Client]:
    """Three samples in batches of two, and two samples in one batch; a number and a row of draws for every step."""
    job: Any = None
    return [
        Client(
            Work(0, {}, None),
            job,
            3,
            [np.array([2, 0]), np.array([1])],
            {"one": np.array([0.1, 0.2]), "each": np.array([[1.0, 2.0], [3.0, 0.0]])},
        ),
        Client(Work(1, {}, None), job, 2, [np.array([1])], {"one": np.array([0.5]), "each": np.array([[9.0]])}),
    ]


def test_batches_by_hand() -> None:
    tables = Tables(2, 2, torch.device("cpu"))
    assert tables.fill(clients(), ROWS, Y)
    first = tables.batches(X, 2)
    assert first.x.tolist() == [[[50.0], [30.0]], [[80.0], [70.0]]]  # the second lane's padding shows its sample 0
    assert first.y.tolist() == [[105, 103], [108, 107]]
    assert first.weight.tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert first.index.tolist() == [[2, 0], [1, 0]]
    assert torch.allclose(first.noise["one"], torch.tensor([0.1, 0.5], dtype=first.noise["one"].dtype))
    assert first.noise["each"].tolist() == [[1.0, 2.0], [9.0, 0.0]]
    second = tables.batches(X, 1)  # the second client is done
    assert second.x.tolist() == [[[40.0], [30.0]]]
    assert second.weight.tolist() == [[1.0, 0.0]]
    assert second.index.tolist() == [[1, 0]]
    assert torch.allclose(second.noise["one"], torch.tensor([0.2], dtype=second.noise["one"].dtype))
    assert second.noise["each"].tolist() == [[3.0, 0.0]]


def test_labels_that_are_no_single_whole_numbers_are_looked_up() -> None:
    real, several = Y + 0.5, torch.stack([Y, -Y], 1)
    for labels, wanted in (
        (real, [[105.5, 103.5], [108.5, 107.5]]),
        (several, [[[105, -105], [103, -103]], [[108, -108], [107, -107]]]),
    ):
        tables = Tables(2, 2, torch.device("cpu"))
        tables.fill(clients(), ROWS, labels)
        found = tables.batches(X, 2).y
        assert found.tolist() == wanted
        assert found.dtype == labels.dtype


def test_tables_stay_where_they_are_while_there_is_room() -> None:
    tables = Tables(2, 2, torch.device("cpu"))
    assert tables.fill(clients(), ROWS, Y)
    places = [tables.numbers.data_ptr(), tables.noise["one"].data_ptr()]
    tables.batches(X, 2)
    assert not tables.fill(clients()[::-1], ROWS[::-1], Y)  # begins at the first step again
    assert tables.batches(X, 2).index.tolist() == [[1, 0], [2, 0]]
    assert [tables.numbers.data_ptr(), tables.noise["one"].data_ptr()] == places
    longer = clients()
    longer[0] = replace(
        longer[0],
        batches=[np.array([step % 3]) for step in range(9)],
        draws={"one": np.arange(9.0), "each": np.zeros((9, 2))},
    )
    assert tables.fill(longer, ROWS, Y)
    assert [tables.batches(X, 1).index[0, 0].item() for _ in range(9)] == [0, 1, 2] * 3
    wider = clients()
    wider[0] = replace(wider[0], draws={"one": np.array([0.1, 0.2]), "each": np.ones((2, 5))})
    assert tables.fill(wider, ROWS, Y)  # other draws do not fit
    assert tables.batches(X, 2).noise["each"].tolist() == [[1.0] * 5, [9.0, 0.0, 0.0, 0.0, 0.0]]
