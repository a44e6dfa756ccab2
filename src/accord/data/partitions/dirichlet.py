"""Partitions with label shares drawn from a Dirichlet distribution: per class over clients, or per client."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from accord.data.checks import labels_of
from accord.data.dealing import by_owner, deal, dirichlet_draw, enough, in_proportion, top_up
from accord.data.federated import Dataset, Groups, Index
from accord.data.partitions.registry import partition
from accord.settings import AtLeast, Range

CONCENTRATION = Range(low=1e-6, high=1e9)
REDRAWS = 10  # after these the best draw is mended instead


@partition("dirichlet", by_class=True)
def dirichlet(
    dataset: Dataset,
    clients: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[float, CONCENTRATION, "concentration: small is skewed, large is IID"] = 0.5,
    min_size: Annotated[int, AtLeast(1), "samples every client has at least"] = 10,
    balance: Annotated[bool, "give no more to a client that already holds N / K samples"] = False,
) -> Groups:
    """Every class divided among the clients by shares ~ Dir(alpha, ..., alpha) (FedRANE and many others).

    All samples are used. The shares are drawn again, up to ten times, until every client has `min_size`
    samples; then the draw that came nearest is mended by moving random samples from the largest clients to
    those below. Drawing again without end, as is common, may never stop: with 500 clients nearly every draw
    has a small one.
    """
    labels = labels_of(dataset.train, dataset.num_classes)
    enough(len(labels), clients, min_size)
    class_sizes = np.bincount(labels, minlength=dataset.num_classes)
    draws: list[tuple[int, Index]] = []
    for _ in range(REDRAWS):
        counts = dirichlet_counts(class_sizes, clients, alpha, balance, rng)
        short = int(np.maximum(min_size - counts.sum(axis=1), 0).sum())
        draws.append((short, counts))
        if not short:
            break
    _, best = min(draws, key=lambda draw: draw[0])
    return by_owner(top_up(deal(labels, best, rng), clients, min_size, rng), clients)


def dirichlet_counts(class_sizes: Index, clients: int, alpha: float, balance: bool, rng: np.random.Generator) -> Index:
    """[K, C] samples of each class for each client, one draw.

    A client that is full (`balance`) is left out of the draw. That is the same as drawing for all and
    renormalising, because the remaining shares of a Dirichlet draw are again one, but it cannot divide by
    zero.
    """
    counts = np.zeros((clients, len(class_sizes)), dtype=np.int64)
    held = np.zeros(clients, dtype=np.int64)
    for c in np.flatnonzero(class_sizes):
        full = held * clients >= class_sizes.sum() if balance else np.zeros(clients, dtype=np.bool_)
        open_clients = np.flatnonzero(~full)
        share = dirichlet_draw(np.full(len(open_clients), alpha), rng)
        counts[open_clients, c] = in_proportion(share, int(class_sizes[c]))
        held += counts[:, c]
    return counts


@partition("lda", by_class=True)
def lda(
    dataset: Dataset,
    clients: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[float, CONCENTRATION, "concentration: small is skewed, large is IID"] = 0.1,
    prior: Annotated[bool, "multiply alpha by the class shares of the samples that remain"] = True,
) -> Groups:
    """Clients of equal size, one after another, each with label shares of its own (Hsu et al. 2019; FedBR).

    Client i draws q_i ~ Dir(alpha * p) and then floor(N / K) samples without replacement, the class of each
    from q_i; a class that runs out gets share 0 and the others are renormalised. p is the class distribution
    of the samples not yet given away (it sums to 1, so alpha = 0.1 over 10 classes is 0.01 per class), or all
    ones with `prior = false`. The N mod K samples that do not divide are given to nobody.
    """
    labels = labels_of(dataset.train, dataset.num_classes)
    enough(len(labels), clients)
    left = np.bincount(labels, minlength=dataset.num_classes)
    counts = np.zeros((clients, dataset.num_classes), dtype=np.int64)
    for client in range(clients):
        counts[client] = lda_client(left, len(labels) // clients, alpha, prior, rng)
        left = left - counts[client]
    return by_owner(deal(labels, counts, rng), clients)


def lda_client(left: Index, size: int, alpha: float, prior: bool, rng: np.random.Generator) -> Index:
    """[C] samples of each class for one client of `size`, when `left` are still there.

    Draws beyond what a class has left are drawn again among the other classes, at most C times: counted over
    all draws this is the same as setting the share to 0 at the moment the class runs out.
    """
    factor = left / left.sum() if prior else np.ones(len(left))
    taken = np.zeros(len(left), dtype=np.int64)
    share = np.zeros(len(left))
    while (missing := size - int(taken.sum())) > 0:
        remaining = np.flatnonzero(left > taken)
        mass = share[remaining].sum()
        if mass > 0:
            share = np.where(left > taken, share, 0.0) / mass
        else:  # the first draw, or all classes with a share ran out: the rest is a Dirichlet draw too
            share = np.zeros(len(left))
            share[remaining] = dirichlet_draw(alpha * factor[remaining], rng)
        taken = np.minimum(taken + rng.multinomial(missing, share), left)
    return taken
