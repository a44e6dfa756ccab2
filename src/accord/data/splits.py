"""Train, validation and test parts, of a whole data set or of every client, and clients kept out of training.

A client whose test part is empty (fewer than two samples to divide, or none of the test samples of its
classes left for it) stays in the federation; per-client metrics skip it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accord.data.checks import is_finite_number
from accord.data.dealing import by_owner, in_proportion, owners, rank_within, shuffled_within
from accord.data.federated import Groups, Index
from accord.errors import ConfigError, DataError

SHARED_LIMIT = 20_000_000  # index entries, 160 MB


def stratified(
    strata: npt.NDArray[np.integer], fraction: float, rng: np.random.Generator, spread: Index | None = None
) -> tuple[Index, Index]:
    """A data set without a test part: positions to keep and positions to set aside for testing, both ascending.

    Of a stratum of n samples `fraction * n` are set aside, rounded, but at least one and never all; a single
    sample is kept. With `spread` (a label per sample) those set aside are also spread evenly over its values,
    as far as whole numbers allow: a systematic sample, at equal steps from a random start, of the samples
    sorted by it.
    """
    if not 0 < fraction < 1:
        raise DataError(f"the test fraction must lie between 0 and 1, got {fraction}")
    shuffled = rng.permutation(len(strata))
    keys = (strata[shuffled],) if spread is None else (spread[shuffled], strata[shuffled])
    order = shuffled[np.lexsort(keys)]  # by stratum, then by spread, then at random
    _, counts = np.unique(strata, return_counts=True)
    aside = np.zeros(len(strata), dtype=bool)
    start = 0
    for n in counts.tolist():
        taken = min(max(1, int(fraction * n + 0.5)), n - 1)
        if taken:
            steps = (np.arange(taken) + rng.random()) * (n / taken)
            aside[order[start + np.minimum(steps.astype(np.int64), n - 1)]] = True
        start += n
    if not aside.any():
        raise DataError("no stratum has two samples, so no test data can be set aside; give test data")
    return np.flatnonzero(~aside).astype(np.int64), np.flatnonzero(aside).astype(np.int64)


def nothing(clients: int) -> Groups:
    """An empty list for every client."""
    return Groups(np.zeros(0, dtype=np.int64), np.zeros(clients + 1, dtype=np.int64))


def holdout(groups: Groups, fraction: float, rng: np.random.Generator) -> tuple[Groups, Groups]:
    """Divide every client's samples at random: what stays, and what is held out.

    round(fraction * n) samples are held out (halves up), but never the last one: a client with one sample
    keeps it.
    """
    if not is_finite_number(fraction) or not 0 <= fraction < 1:
        raise ConfigError(f"the fraction to hold out must be at least 0 and below 1, not {fraction!r}")
    sizes = groups.sizes
    take = np.minimum(np.floor(fraction * sizes + 0.5).astype(np.int64), np.maximum(sizes - 1, 0))
    if not take.any():
        return groups, nothing(len(groups))
    mixed = shuffled_within(groups, rng)
    held = rank_within(sizes) < np.repeat(take, sizes)
    client = owners(groups)

    def part(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Groups:
        rows = np.lexsort((mixed.order[mask], client[mask]))  # ascending again, as partitions are
        counts = np.bincount(client[mask], minlength=len(groups))
        return Groups(mixed.order[mask][rows], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    return part(~held), part(held)


def matching(train: Groups, train_kind: Index, test_kind: Index, rng: np.random.Generator) -> Groups:
    """Deal the test samples so that every client is tested on what it trains on.

    A kind is a class (or a class of a domain). The test samples of a kind go to the clients in proportion to
    how much of its train samples they hold, to within one sample; who gets the odd ones is random. No test
    sample goes to two clients, and all are used whose kind somebody trains on.
    """
    kinds = int(test_kind.max(initial=-1)) + 1  # those above have no test samples
    client = owners(train)
    by_kind = Groups.by_id(train_kind[train.order], kinds)
    tests = shuffled_within(Groups.by_id(test_kind, kinds), rng)
    owner = np.full(len(test_kind), -1, dtype=np.int64)
    for kind in range(kinds):
        holders, held = np.unique(client[by_kind[kind]], return_counts=True)
        if not len(holders) or not len(tests[kind]):
            continue
        mixed = rng.permutation(len(holders))
        owner[tests[kind]] = np.repeat(holders[mixed], in_proportion(held[mixed], len(tests[kind])))
    return by_owner(owner, len(train))


def shared(samples: int, clients: int) -> Groups:
    """Every client is tested on all test samples."""
    if samples * clients > SHARED_LIMIT:
        raise ConfigError(
            f"test = 'shared' would list {samples} test samples for each of {clients} clients, more than "
            f"{SHARED_LIMIT} entries; use test = 'matching', which deals the test samples out"
        )
    return Groups(
        np.tile(np.arange(samples, dtype=np.int64), clients), np.arange(clients + 1, dtype=np.int64) * samples
    )


def natural(ids: Index | None, samples: int, clients: int) -> Groups:
    """The test samples of each natural client, as the data set names them."""
    if ids is None:
        raise DataError(
            "test = 'natural' needs a data set that names the client of each test sample; use 'matching' or 'holdout'"
        )
    ids = np.asarray(ids)
    if ids.shape != (samples,) or not np.issubdtype(ids.dtype, np.integer):
        raise DataError(f"natural test clients must be one whole number per test sample, got shape {ids.shape}")
    if len(ids) and (ids.min() < 0 or ids.max() >= clients):
        raise DataError(
            f"natural test clients are numbered {ids.min()} to {ids.max()}, but there are {clients} clients; "
            f"set clients = {ids.max() + 1}"
        )
    return Groups.by_id(ids.astype(np.int64), clients)


def unseen_clients(clients: int, unseen: float, rng: np.random.Generator) -> frozenset[int]:
    """Random clients that never train: an int is their number, a float below 1 a fraction (rounded down)."""
    if not is_finite_number(unseen) or unseen < 0 or (isinstance(unseen, float) and unseen >= 1):
        raise ConfigError(f"unseen must be a whole number of clients or a fraction of them below 1, not {unseen!r}")
    number = int(unseen * clients) if isinstance(unseen, float) else int(unseen)
    if number >= clients:
        raise ConfigError(
            f"{number} unseen of {clients} clients leave none to train; unseen may be at most {clients - 1}"
        )
    return frozenset(rng.permutation(clients)[:number].tolist())
