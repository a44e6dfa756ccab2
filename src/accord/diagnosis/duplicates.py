"""Duplicates: the same sample at several clients, or in training and in test.

Samples are compared by a digest of their bytes, as they are stored, all of them; nearly equal ones among the samples
that were gathered. In a table of few values equal rows are no copies: there, clients' rows may meet as often as rows
meet within a client.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict

import numpy as np
import torch
from torch import Tensor

from accord.data.dealing import owners
from accord.data.federated import FederatedData, Groups, Index, Pool
from accord.diagnosis.finding import Finding, called, graded, several
from accord.diagnosis.gathered import Gathered

NAME, TITLE = "duplicates", "Duplicates"
MILD, STRONG = 0.002, 0.02  # share of samples
SAMPLES = 300_000  # that are compared; more are drawn
NEAR = 0.1  # of the usual distance to the nearest sample
WIDE = 32  # numbers of an input, below which samples lie near one another by chance
SHOWN = 40


def duplicate_samples(data: FederatedData, some: Gathered) -> Finding:
    """Between clients, and between the training and the test samples of all."""
    order, client = data.train.order, owners(data.train)
    if len(order) > SAMPLES:  # the first of every client: no draw, so that copies laid at the same places are found
        kept = np.linspace(0, len(order) - 1, SAMPLES).astype(np.int64)
        order, client = order[kept], client[kept]
    digests = _digests(data.train_pool, order)
    holders: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
    for digest, k in zip(digests, client.tolist(), strict=True):
        holders[digest][k] += 1
    plain = expected_meetings(data.train_pool.x[order[: min(len(order), 2000)]], len(order)) >= 0.5
    between = {d: held for d, held in holders.items() if len(held) > 1}
    copies = sum(sum(held.values()) for held in between.values())
    coincidences = _coincidences(holders, data.sizes, between) if plain else 0.0
    surplus = max(copies - coincidences, 0.0) if plain else float(copies)
    within = sum(n - 1 for held in holders.values() for n in held.values())
    leaked = _leaked(data, holders) if not plain else 0
    near = near_copies(some) if not plain else 0
    tests = max(len(_test_order(data)), 1)
    share, leak = surplus / max(len(order), 1), leaked / tests
    severity = graded(max(share, leak, near / max(len(some), 1)), MILD, STRONG)
    pairs = Counter((a, b) for held in between.values() for a in held for b in held if a < b)
    top = [(a, b, n) for (a, b), n in pairs.most_common(SHOWN)] if severity != "none" else []
    numbers: dict[str, float | int | None] = {
        "samples": len(order),
        "at_several_clients": copies,
        "share": share,
        "expected_coincidences": coincidences,
        "repeated_within_a_client": within,
        "in_training_and_test": leaked,
        "nearly_equal_between_clients": near,
    }
    return Finding(
        NAME,
        TITLE,
        severity,
        _sentence(data, copies, share, plain, leaked, leak, within, near, top, severity != "none"),
        numbers,
        tuple(dict.fromkeys(called(data, k) for a, b, _ in top[:4] for k in (a, b))),
        {
            "kind": "bars",
            "labels": [f"{called(data, a)} and {called(data, b)}" for a, b, _ in top],
            "values": [n for *_, n in top],
            "caption": "Samples that two clients share, by pair",
        }
        if top
        else {
            "kind": "bars",
            "labels": ["between clients", "training and test", "within a client"],
            "values": [copies, leaked, within],
            "caption": "Samples that occur more than once",
        },
    )


def _digests(pool: Pool, index: Index) -> list[bytes]:
    """Of inputs as they are stored, in parts that fit into memory. -0.0 and 0.0 are the same."""
    found: list[bytes] = []
    step = max(1, (1 << 26) // max(pool.x[:1].numel() * pool.x.element_size(), 1))
    for start in range(0, len(index), step):
        rows = pool.x[index[start : start + step]].cpu().reshape(len(index[start : start + step]), -1)
        if rows.is_floating_point():
            rows = rows + 0.0
        found += [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows.contiguous().numpy()]
    return found


def expected_meetings(x: Tensor, samples: int) -> float:
    """How many equal pairs there would be if the columns of the inputs had nothing to do with one another."""
    rows = x.reshape(len(x), -1)
    if len(rows) < 2 or not rows.shape[1]:
        return 0.0
    chance = 1.0
    for column in rows[:, : 4 * WIDE].T:
        counts = torch.unique(column, return_counts=True)[1].double()
        meet = float((counts * (counts - 1)).sum()) / (len(rows) * (len(rows) - 1))
        chance *= max(meet, 1 / len(rows) ** 2)
    varied = int((rows != rows[:1]).any(0).sum())
    if rows.shape[1] > 4 * WIDE and varied > 4 * WIDE:
        return 0.0
    return chance * samples * (samples - 1) / 2


def _coincidences(holders: dict[bytes, Counter[int]], sizes: Index, between: dict[bytes, Counter[int]]) -> float:
    """Samples at several clients that would be, if rows met between clients as often as within one."""
    within = sum(n * (n - 1) for held in holders.values() for n in held.values())
    pairs = float((sizes * (sizes - 1.0)).sum())
    across = float(sizes.sum()) ** 2 - float((sizes.astype(np.float64) ** 2).sum())
    met = sum(sum(held.values()) ** 2 - sum(n * n for n in held.values()) for held in between.values())
    copies = sum(sum(held.values()) for held in between.values())
    if not met or not pairs:
        return float(copies)
    # As many samples as the meetings that were to be expected bring along; a little more is chance too.
    return copies * min(1.0, 1.25 * (within / pairs) * across / met)


def _test_order(data: FederatedData) -> Index:
    groups: Groups = data.test
    return np.unique(groups.order)


def _leaked(data: FederatedData, holders: dict[bytes, Counter[int]]) -> int:
    """Test samples of clients that somebody trains on."""
    index = _test_order(data)[:SAMPLES]
    pool = data.train_pool if data.test_from == "train" else data.test_pool
    return sum(digest in holders for digest in _digests(pool, index))


def near_copies(some: Gathered) -> int:
    """Samples so near to one of another client, and not equal to it, that they are hardly another sample."""
    if len(some) < 10:
        return 0
    rows = some.x.reshape(len(some.x), -1)
    if rows.shape[1] < WIDE or not some.x.is_floating_point():
        return 0
    rows = rows[:2000].float()
    if rows.shape[1] > 512:  # distances survive a random projection, give or take a tenth
        generator = torch.Generator().manual_seed(0)
        rows = rows @ (torch.randn(rows.shape[1], 256, generator=generator) / 16)
    apart = torch.cdist(rows, rows)
    apart.fill_diagonal_(float("inf"))
    usual = float(apart.min(1).values.median())
    owner = torch.from_numpy(some.client[: len(rows)])
    apart[owner[:, None] == owner[None, :]] = float("inf")
    nearest = apart.min(1).values
    return int(((nearest < NEAR * usual) & (nearest > 1e-3 * usual)).sum()) if usual > 0 else 0


def _sentence(
    data: FederatedData,
    copies: int,
    share: float,
    plain: bool,
    leaked: int,
    leak: float,
    within: int,
    near: int,
    top: list[tuple[int, int, int]],
    found: bool,
) -> str:
    parts = []
    if copies and share >= MILD:
        which = several(tuple(f"{called(data, a)} and {called(data, b)} ({n})" for a, b, n in top), 2)
        parts.append(f"{copies:,} training samples lie at more than one client, most at {which}")
    if leaked and leak >= MILD:
        parts.append(f"{leaked:,} test samples ({100 * leak:.1f} %) are somebody's training samples too")
    if near:
        parts.append(f"{near} more are almost equal to one of another client")
    if parts and found:
        return _begun("; ".join(parts)) + ": they count twice, and tests on them say too much."
    if plain:
        return "Rows of this table have few different values: that some are equal says nothing about copies."
    if copies or leaked or within:
        seen = f"{copies} between clients, {leaked} between training and test, {within} within a client"
        return f"Next to no sample occurs twice ({seen})."
    return "No sample occurs twice."


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]
