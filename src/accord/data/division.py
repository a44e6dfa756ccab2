"""From a data set to federated data in one call: partition, local splits, transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch

from accord.data import splits
from accord.data.checks import check_clients, check_dataset, check_ids, check_labels, labels_of
from accord.data.federated import Dataset, FederatedData, Groups, Index, Pool
from accord.data.partitions import PARTITIONS
from accord.data.streams import stream
from accord.data.transforms import make_transform
from accord.errors import ConfigError, DataError
from accord.settings import PROPER_FRACTION, AtLeast, check, settings_of

NO_SETTINGS: Mapping[str, Any] = {}
CLIENTS = 20  # where neither the caller nor the data says how many
Tests = Literal["auto", "matching", "holdout", "shared", "natural"]


class Arrangement(NamedTuple):
    """How a data set is divided, once everything that was left open is settled."""

    partition: str
    clients: int
    test: Tests


def arrangement(
    dataset: Dataset | None, partition: str = "auto", clients: int = 0, test: Tests = "auto"
) -> Arrangement:
    """What is left open (`auto`, 0) follows from the data: where it names clients, they are the clients.

    Without a data set it is that of data which names nobody.
    They are then tested on their own test samples or, where those name nobody, on a holdout of their own samples: a
    test set that mixes clients says nothing of any of them.
    """
    named = dataset is not None and dataset.train_clients is not None
    tested = dataset is not None and dataset.test_clients is not None
    if partition == "auto":
        partition = "natural" if named else "dirichlet"
    own = partition == "natural"
    if test == "auto":
        test = "matching" if not own else "natural" if tested else "holdout"
    if not clients:
        clients = count_named(dataset) if dataset is not None and named and own else CLIENTS
    return Arrangement(partition, clients, test)


def count_named(dataset: Dataset) -> int:
    """How many clients the data names."""
    ids = [part for part in (dataset.train_clients, dataset.test_clients) if part is not None]
    return len(dataset.client_names) or max(int(np.max(part, initial=-1)) + 1 for part in ids)


def federate(
    dataset: Dataset,
    *,
    clients: Annotated[int, AtLeast(0), "number of clients; 0: those the data names, else 20"] = 0,
    partition: Annotated[str, "who gets which samples"] = "auto",
    partition_settings: Mapping[str, Any] = NO_SETTINGS,
    transform: Annotated[str, "how each client's inputs are changed"] = "none",
    transform_settings: Mapping[str, Any] = NO_SETTINGS,
    test: Annotated[Tests, "what clients are tested on"] = "auto",
    holdout: Annotated[float, PROPER_FRACTION, "own samples kept for test, with test = holdout"] = 0.25,
    validation: Annotated[float, PROPER_FRACTION, "share of the training samples kept for validation"] = 0.0,
    unseen: Annotated[float, "clients that never train: a number, or a fraction below 1"] = 0,
    limit: Annotated[int | None, "use only so many random training samples"] = None,
    seed: Annotated[int, AtLeast(0), "seed of all random choices"] = 0,
) -> FederatedData:
    """Divide a data set among clients.

    Data that names the client of each sample is divided by it, unless another `partition` is named; other data by
    `dirichlet`. `test` says what a client is tested on: `matching` test samples of its classes, dealt out; a
    `holdout` of its own samples; the `shared` whole test pool; or the `natural` ones named by the data set; see
    `arrangement` for what is meant when nothing is said.
    Validation samples are taken from what is left for training. Partition, limit, splits, unseen clients and
    transform each have their own random stream, so that asking for one more thing leaves the others as they
    were.
    """
    given = {"test": test, "holdout": holdout, "validation": validation, "seed": seed}
    check("federate", settings_of(federate), given)
    check_clients(clients, least=0)
    check_dataset(dataset)
    if partition == "auto" and partition_settings:
        raise ConfigError(f"{', '.join(partition_settings)}: settings of a partition that is not named; say partition=")
    partition, clients, test = arrangement(dataset, partition, clients, test)
    rule = PARTITIONS[partition]
    if test == "natural" and partition != "natural":
        raise ConfigError(
            f"test = 'natural' belongs to partition = 'natural', not {partition!r}; use test = 'matching' or 'holdout'"
        )
    check_enough(dataset, clients)
    check_test_pool(dataset, test)
    away = splits.unseen_clients(clients, unseen, stream(seed, "unseen"))
    notes = [dataset.note] if dataset.note else []
    if partition == "natural" and test == "holdout" and dataset.test_clients is None and len(dataset.test):
        notes.append(f"the test data names no clients: each is tested on {100 * holdout:g} % of its own samples")
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
        problem=dataset.problem,
        fields=dataset.fields,
        classes=dataset.classes,
        names=dataset.client_names if partition == "natural" else (),
        division=partition,
        note="; ".join(notes),
        raw=dataset.raw,
        search=dataset.search,
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
    check_labels(dataset, "test")


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
    """What must match between train and test samples: the class, and the domain where both have domains.

    Samples that have no class are all of one kind.
    """
    if dataset.problem == "classification":
        train, test = (labels_of(pool, dataset.num_classes) for pool in (dataset.train, dataset.test))
    else:
        train, test = (np.zeros(len(pool), dtype=np.int64) for pool in (dataset.train, dataset.test))
    if dataset.train_domains is None or dataset.test_domains is None:
        return train, test
    train_domains = check_ids(dataset.train_domains, dataset.train, "domains")
    test_domains = check_ids(dataset.test_domains, dataset.test, "test domains")
    return train_domains * dataset.num_classes + train, test_domains * dataset.num_classes + test


def said(groups: Groups, part: str) -> list[str]:
    """A remark on clients without samples, if there are any."""
    empty = int((groups.sizes == 0).sum())
    return [f"{empty} of {len(groups)} clients have no {part} samples"] if empty else []
