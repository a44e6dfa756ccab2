"""What is left open about a division follows from the data: where it names clients, they are the clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import accord
from accord.data.division import Arrangement, arrangement
from accord.data.partitions import PARTITIONS
from accord.errors import ConfigError, DataError

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = np.arange(60) % 2
SITES = ["Lyon", "Aix", "Nice"] * 20


def dataset(sites: Any = SITES, tested: bool = True) -> accord.data.Dataset:
    own = () if sites is None or not tested else (sites,)
    return accord.from_arrays(X, Y, sites, test=(X, Y, *own))


@pytest.mark.parametrize(
    ("data", "said", "found"),
    [
        (dataset(), {}, ("natural", 3, "natural")),
        (dataset(tested=False), {}, ("natural", 3, "holdout")),
        (dataset(None), {}, ("dirichlet", 20, "matching")),
        (None, {}, ("dirichlet", 20, "matching")),
        (dataset(), {"partition": "iid"}, ("iid", 20, "matching")),
        (dataset(), {"partition": "iid", "clients": 4}, ("iid", 4, "matching")),
        (dataset(), {"partition": "natural"}, ("natural", 3, "natural")),
        (dataset(), {"test": "holdout"}, ("natural", 3, "holdout")),
        (dataset(), {"test": "shared"}, ("natural", 3, "shared")),
        (dataset(None), {"clients": 5, "test": "holdout"}, ("dirichlet", 5, "holdout")),
    ],
)
def test_what_is_open_and_what_is_said(data: Any, said: dict[str, Any], found: tuple[Any, ...]) -> None:
    assert arrangement(data, **said) == Arrangement(*found)


def test_ids_divide_the_data_without_a_switch() -> None:
    divided = accord.federate(dataset())
    assert (divided.names, divided.division, len(divided)) == (("Aix", "Lyon", "Nice"), "natural", 3)
    assert [divided.name_of(client) for client in range(3)] == ["Aix", "Lyon", "Nice"]
    for client, first in ((0, 1), (1, 0), (2, 2)):
        assert torch.equal(divided.client(client)[0], torch.from_numpy(X[first::3]))
        assert torch.equal(divided.client(client, "test")[0], torch.from_numpy(X[first::3]))
    other = accord.federate(dataset(), partition="iid", clients=4)
    assert (other.names, other.name_of(3), len(other)) == ((), "3", 4)


def test_no_ids_no_names() -> None:
    divided = accord.federate(dataset(None), clients=2)
    assert (divided.names, divided.division, divided.name_of(1)) == ((), "dirichlet", "1")


def test_the_open_partition_by_itself_is_one_of_the_two() -> None:
    rng = np.random.default_rng
    named, plain = dataset(), dataset(None)
    assert PARTITIONS["auto"](named, 3, rng(0)).sizes.tolist() == [20, 20, 20]
    drawn = PARTITIONS["auto"](plain, 4, rng(5))
    assert np.array_equal(drawn.order, PARTITIONS["dirichlet"](plain, 4, rng(5)).order)


def test_another_number_than_that_of_the_sites_is_refused() -> None:
    for wrong in (2, 4):
        with pytest.raises(ConfigError, match="3"):
            accord.federate(dataset(), clients=wrong)
    with pytest.raises(ConfigError, match="alpha: settings of a partition that is not named"):
        accord.federate(dataset(), partition_settings={"alpha": 0.1})
    with pytest.raises(DataError, match="3 clients have 2 names"):
        replace(accord.federate(dataset()), names=("a", "b"))


@pytest.mark.parametrize(
    "sites",
    [
        SITES,
        tuple(SITES),
        np.array(SITES),
        np.array(SITES, dtype=object),
        np.array(SITES, dtype="S"),
        pd.Series(SITES),
        pd.Series(SITES, dtype="category"),
        pd.Series(SITES, dtype="string"),
        pd.Categorical(SITES),
    ],
)
def test_names_of_every_kind_are_kept(sites: Any) -> None:
    data = accord.from_arrays(X, Y, sites, test=(X, Y))
    assert data.client_names == ("Aix", "Lyon", "Nice")
    assert data.train_clients is not None
    assert data.train_clients.tolist() == [1, 0, 2] * 20


def test_numbers_are_names_in_their_own_order() -> None:
    for sites in (np.array([100, 7, 30] * 20), pd.Series([100, 7, 30] * 20), ["100", "7", "30"] * 20):
        data = accord.from_arrays(X, Y, sites, test=(X, Y))
        assert data.client_names == ("7", "30", "100")
        assert data.train_clients is not None
        assert data.train_clients.tolist() == [2, 0, 1] * 20


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        (pd.Series([None, *SITES[1:]]), "clients has 1 missing ids, first at position 0"),
        (pd.Series([pd.NA, *range(59)], dtype="Int64"), "clients has 1 missing ids"),
        ([True, False] * 30, "whole numbers or strings, got True"),
        (np.array([b"\xff"] * 60), "not UTF-8"),
        (["x" * 201] * 60, "names of 1 to 200 characters"),
        (["Lyon", "Lyon "] * 30, "differ by spaces only: 'Lyon '"),
    ],
)
def test_ids_that_are_refused(sites: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        accord.from_arrays(X, Y, sites)
