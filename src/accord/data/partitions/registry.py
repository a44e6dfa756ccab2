"""The registry of partitions, and the checks that are made for every one of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

import numpy as np

from accord.data.checks import check_clients, check_dataset
from accord.data.federated import Dataset, Groups
from accord.errors import ConfigError, DataError
from accord.settings import Registry

P = ParamSpec("P")
Rule = Callable[Concatenate[Dataset, int, np.random.Generator, P], Groups]
Partition = Callable[..., Groups]

PARTITIONS: Registry[Partition] = Registry("partition")


def partition(name: str, *, may_be_empty: bool = False, by_class: bool = False) -> Callable[[Rule[P]], Rule[P]]:
    """Register a rule `f(dataset, clients, rng, *, settings...) -> Groups`, with the checks every rule needs.

    Data set, number of clients and settings are checked before the rule runs; one that deals `by_class` gets no data
    whose samples have no class. Unless `may_be_empty`, a client left without samples afterwards is an error.
    """

    def register(rule: Rule[P]) -> Rule[P]:
        @functools.wraps(rule)
        def deal(
            dataset: Dataset, clients: int, rng: np.random.Generator, /, *args: P.args, **settings: P.kwargs
        ) -> Groups:
            check_dataset(dataset)
            if by_class and dataset.problem != "classification":
                able = ", ".join(other for other in PARTITIONS if not PARTITIONS.facts(other)["by_class"])
                raise ConfigError(
                    f"partition {name!r} deals samples out by their class, and {dataset.problem} has no classes: use "
                    f"one that does not ({able})"
                )
            groups = rule(dataset, check_clients(clients), rng, *args, **settings)
            empty = np.flatnonzero(groups.sizes == 0)
            if len(empty) and not may_be_empty:
                shown = ", ".join(map(str, empty[:5])) + (", ..." if len(empty) > 5 else "")
                raise DataError(
                    f"partition {name!r} leaves {len(empty)} of {clients} clients without samples "
                    f"(clients {shown}); ask for fewer clients or use more data"
                )
            return groups

        registered: Rule[P] = PARTITIONS.add(name, by_class=by_class)(deal)
        return registered

    return register
