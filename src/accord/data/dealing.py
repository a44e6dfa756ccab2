"""Ways of dealing samples out so that nobody gets one twice.

A division first writes down an owner per sample (-1: nobody) and then groups by owner, so a sample cannot
end up with two clients whatever the rule. K clients, N samples, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from accord.data.federated import Groups, Index
from accord.errors import ConfigError


def enough(samples: int, clients: int, each: int = 1) -> None:
    """Refuse when there are not `each` samples for every client."""
    if clients * each > samples:
        raise ConfigError(
            f"{clients} clients with at least {each} samples each need {clients * each} samples, "
            f"but there are {samples}; ask for at most {samples // each} clients"
            + (f" or a smaller min_size (at most {samples // clients})" if each > 1 and samples >= clients else "")
        )


def by_owner(owner: Index, clients: int) -> Groups:
    """Groups from an owner per sample (-1: nobody); positions ascend within a client."""
    kept = np.flatnonzero(owner >= 0)
    groups = Groups.by_id(owner[kept], clients)
    return Groups(kept[groups.order], groups.offsets)


def owners(groups: Groups) -> Index:
    """The client of every entry of `groups.order`."""
    return np.repeat(np.arange(len(groups), dtype=np.int64), groups.sizes)


def rank_within(sizes: Index) -> Index:
    """0, 1, 2, ... within each of the groups of these sizes, laid end to end."""
    starts = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum()), dtype=np.int64) - np.repeat(starts, sizes)


def shuffled_within(groups: Groups, rng: np.random.Generator) -> Groups:
    """The same groups, each in random order."""
    order = np.lexsort((rng.random(len(groups.order)), owners(groups)))
    return Groups(groups.order[order], groups.offsets)


def in_proportion(weights: npt.NDArray[Any], total: int) -> Index:
    """Whole numbers in proportion to `weights` that sum to `total`; each is off by less than one.

    The running sum is rounded down, not the shares, so nothing is left over; a weight of 0 gets 0.
    """
    running = np.cumsum(weights)
    bounds = (running * total) // running[-1]
    bounds[running == running[-1]] = total  # float division may end one short
    return np.asarray(np.diff(bounds, prepend=0), dtype=np.int64)


def deal(labels: Index, counts: Index, rng: np.random.Generator) -> Index:
    """Owner per sample when client k gets `counts[k, c]` random samples of class c; counts [K, C]."""
    clients, classes = counts.shape
    owner = np.full(len(labels), -1, dtype=np.int64)
    by_class = shuffled_within(Groups.by_id(labels, classes), rng)
    for c in range(classes):
        receivers = np.repeat(np.arange(clients, dtype=np.int64), counts[:, c])
        owner[by_class[c][: len(receivers)]] = receivers
    return owner


def dirichlet_draw(concentration: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """One draw from a Dirichlet distribution.

    Done in logarithms (log Gamma(a) = log Gamma(a + 1) + log(U) / a), since with concentrations of 0.01 and
    less all Gamma draws can underflow and leave 0 / 0.
    """
    uniform = 1.0 - rng.random(concentration.shape)  # in (0, 1]
    log_gamma = np.log(rng.standard_gamma(concentration + 1.0)) + np.log(uniform) / concentration
    weight = np.exp(log_gamma - log_gamma.max())
    return np.asarray(weight / weight.sum(), dtype=np.float64)


def top_up(owner: Index, clients: int, min_size: int, rng: np.random.Generator) -> Index:
    """Move random samples of the largest clients to those below `min_size` until none is below it.

    The largest give down to a common level, so that no client falls below any that gave nothing. Needs
    `clients * min_size` owned samples; always ends.
    """
    groups = by_owner(owner, clients)
    sizes = groups.sizes
    need = np.maximum(min_size - sizes, 0)
    wanted = int(need.sum())
    if not wanted:
        return owner
    low, high = min_size, int(sizes.max())  # the highest level that frees enough lies in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        if np.maximum(sizes - middle, 0).sum() >= wanted:
            low = middle
        else:
            high = middle
    give = np.maximum(sizes - low, 0)
    give[np.flatnonzero(give)[: int(give.sum()) - wanted]] -= 1  # one level higher would free too few
    moved = shuffled_within(groups, rng).order[rank_within(sizes) < np.repeat(give, sizes)]
    result: Index = owner.copy()
    result[moved] = np.repeat(np.arange(clients, dtype=np.int64), need)
    return result
