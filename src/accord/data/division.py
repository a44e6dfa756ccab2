"""From a data set to federated data in one call: partition, local splits, transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch

from accord.data import splits
from accord.data.checks import check_clients, check_dataset, check_ids, labels_of
from accord.data.federated import Dataset, FederatedData, Groups, Index, Pool
from accord.data.partitions import PARTITIONS
from accord.data.streams import stream
from accord.data.transforms import make_transform
from accord.errors import ConfigError, DataError
from accord.settings import PROPER_FRACTION, AtLeast, check, settings_of

NO_SETTINGS: Mapping[str, Any] = {}


def federate(
    dataset: Dataset,
    *,
    clients: Annotated[int, AtLeast(1), "number of clients"],
    partition: Annotated[str, "who gets which samples"] = "dirichlet",
    partition_settings: Mapping[str, Any] = NO_SETTINGS,
    transform: Annotated[str, "how each client's inputs are changed"] = "none",
    transform_settings: Mapping[str, Any] = NO_SETTINGS,
    test: Annotated[Literal["matching", "holdout", "shared", "natural"], "what clients are tested on"] = "matching",
    holdout: Annotated[float, PROPER_FRACTION, "own samples kept for test, with test = holdout"] = 0.25,
    validation: Annotated[float, PROPER_FRACTION, "share of the training samples kept for validation"] = 0.0,
    unseen: Annotated[float, "clients that never train: a number, or a fraction below 1"] = 0,
    limit: Annotated[int | None, "use only so many random training samples"] = None,
    seed: Annotated[int, AtLeast(0), "seed of all random choices"] = 0,
) -> FederatedData:
    """Divide a data set among clients.

    `test` says what a client is tested on: `matching` test samples of its classes, dealt out (default); a
    `holdout` of its own samples; the `shared` whole test pool; or the `natural` ones named by the data set.
    Validation samples are taken from what is left for training. Partition, limit, splits, unseen clients and
    transform each have their own random stream, so that asking for one more thing leaves the others as they
    were.
    """
    given = {"test": test, "holdout": holdout, "validation": validation, "seed": seed}
    check("federate", settings_of(federate), given)
    clients = check_clients(clients)
    rule = PARTITIONS[partition]
    if test == "natural" and partition != "natural":
        raise ConfigError(
            f"test = 'natural' belongs to partition = 'natural', not {partition!r}; use test = 'matching' or 'holdout'"
        )
    check_dataset(dataset)
    check_enough(dataset, clients)
    check_test_pool(dataset, test)
    away = splits.unseen_clients(clients, unseen, stream(seed, "unseen"))
    notes = [dataset.note] if dataset.note else []
    dataset = limited(dataset, limit, stream(seed, "limit"), notes)
    change = make_transform(transform, dataset, clients, seed, transform_settings)

    everything = rule(dataset, clients, stream(seed, "partition"), **partition_settings)
    train, local_test = everything, splits.nothing(clients)
    if test == "holdout":
        train, local_test = splits.holdout(everything, holdout, stream(seed, "test"))
    elif test == "matching":
        local_test = splits.matching(everything, *kinds(dataset), stream(seed, "test"))
    elif test == "shared":
        local_test = splits.shared(len(dataset.test), clients)
    else:
        local_test = splits.natural(dataset.test_clients, len(dataset.test), clients)
    train, local_validation = splits.holdout(train, validation, stream(seed, "validation"))

    unused = len(dataset.train) - len(everything.order)
    notes += [f"{unused} training samples are with no client"] if unused else []
    notes += said(everything, "training") + said(local_test, "test")
    return FederatedData(
        name=dataset.name,
        train_pool=dataset.train,
        test_pool=dataset.test,
        num_classes=dataset.num_classes,
        train=train,
        validation=local_validation,
        test=local_test,
        test_from="train" if test == "holdout" else "test",
        transform=change.transform,
        environments=change.environments,
        unseen=away,
        classes=dataset.classes,
        names=dataset.client_names if partition == "natural" else (),
        note="; ".join(notes),
    )


def check_enough(dataset: Dataset, clients: int) -> None:
    """Refuse more clients than can have samples, before lists as long as the clients are made."""
    samples = len(dataset.train)
    named = 0 if dataset.train_clients is None else int(np.max(dataset.train_clients, initial=-1)) + 1
    if clients > max(samples, named):
        raise ConfigError(
            f"{clients:,} clients cannot share {samples:,} training samples: use at most as many clients as samples"
        )


def check_test_pool(dataset: Dataset, test: str) -> None:
    """Refuse a test pool that the asked kind of local test cannot use."""
    if test != "holdout" and not len(dataset.test):
        raise DataError(f"data set {dataset.name!r} has no test samples; use test = 'holdout', not {test!r}")
    labels_of(dataset.test, dataset.num_classes, "test")


def limited(dataset: Dataset, limit: int | None, rng: np.random.Generator, notes: list[str]) -> Dataset:
    """The data set with only `limit` random training samples; a larger limit keeps those of a smaller one."""
    if limit is None:
        return dataset
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1:
        raise ConfigError(f"limit must be a whole number of at least 1, or left out, not {limit!r}")
    samples = len(dataset.train)
    if limit >= samples:
        return dataset
    kept = np.sort(rng.permutation(samples)[:limit])

    def some(ids: Index | None, what: str) -> Index | None:
        return None if ids is None else check_ids(ids, dataset.train, what)[kept]

    notes.append(f"{limit} of {samples} training samples used")
    return replace(
        dataset,
        train=subset(dataset.train, kept),
        train_domains=some(dataset.train_domains, "domains"),
        train_clients=some(dataset.train_clients, "natural clients"),
    )


def subset(pool: Pool, index: Index) -> Pool:
    """A pool of some of the samples."""
    where = torch.as_tensor(index, device=pool.y.device)
    return replace(pool, x=pool.x.index_select(0, where.to(pool.x.device)), y=pool.y.index_select(0, where))


def kinds(dataset: Dataset) -> tuple[Index, Index]:
    """What must match between train and test samples: the class, and the domain where both have domains."""
    train = labels_of(dataset.train, dataset.num_classes)
    test = labels_of(dataset.test, dataset.num_classes, "test")
    if dataset.train_domains is None or dataset.test_domains is None:
        return train, test
    train_domains = check_ids(dataset.train_domains, dataset.train, "domains")
    test_domains = check_ids(dataset.test_domains, dataset.test, "test domains")
    return train_domains * dataset.num_classes + train, test_domains * dataset.num_classes + test


def said(groups: Groups, part: str) -> list[str]:
    """A remark on clients without samples, if there are any."""
    empty = int((groups.sizes == 0).sum())
    return [f"{empty} of {len(groups)} clients have no {part} samples"] if empty else []
