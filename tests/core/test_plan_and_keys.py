"""Batches cover the data as promised; draws depend on their address alone."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.keys import Key
from accord.core.plan import Plan


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(0, 12), st.integers(1, 3))
def test_pad_visits_every_sample_once_per_epoch(examples: int, size: int, epochs: int) -> None:
    batches = Plan(epochs, 0, size, "pad").schedule(rng(), examples)
    counts = np.bincount(np.concatenate(batches), minlength=examples)
    assert (counts == epochs).all()
    assert all(len(batch) <= (size or examples) for batch in batches)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(1, 12))
def test_fill_keeps_batches_whole_and_drop_leaves_the_rest(examples: int, size: int) -> None:
    filled = Plan(1, 0, size, "fill").schedule(rng(), examples)
    assert {len(batch) for batch in filled} == {min(size, examples)}
    assert set(np.concatenate(filled)) == set(range(examples))
    assert all(len(set(batch)) == len(batch) for batch in filled), "a batch holds no sample twice"
    dropped = Plan(1, 0, size, "drop").schedule(rng(), examples)
    assert len(dropped) == examples // size


def test_steps_count_batches_across_epochs() -> None:
    batches = Plan(1, 7, 4, "pad").schedule(rng(), 10)  # 3 batches an epoch
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2, 4]
    assert set(np.concatenate(batches[:3])) == set(range(10))


def test_every_epoch_has_an_order_of_its_own() -> None:
    same = rng()
    orders = [same.permutation(10).tolist() for _ in range(3)]
    assert [batch.tolist() for batch in Plan(3, 0, 0).schedule(rng(), 10)] == orders
    filled = Plan(2, 0, 4, "fill").schedule(rng(), 10)
    first, second = orders[0], orders[1]
    assert [batch.tolist() for batch in filled] == [
        *(first[:4], first[4:8], [*first[8:], *first[:2]]),
        *(second[:4], second[4:8], [*second[8:], *second[:2]]),
    ]
    dropped = Plan(0, 3, 4, "drop").schedule(rng(), 10)
    assert [batch.tolist() for batch in dropped] == [first[:4], first[4:8], second[:4]]


def test_nothing_to_do() -> None:
    assert Plan().schedule(rng(), 0) == []
    assert Plan(epochs=0).schedule(rng(), 5) == []
    assert Plan(steps=5, batch_size=8, last_batch="drop").schedule(rng(), 5) == []


@pytest.mark.parametrize(
    ("plan", "examples", "count", "lengths"),
    [
        (Plan(1, 0, 4), 10, 3, [4, 4, 2]),
        (Plan(2, 0, 4), 10, 6, [4, 4, 2]),
        (Plan(0, 0, 4), 10, 0, [4, 4, 2]),
        (Plan(0, 5, 4), 10, 5, [4, 4, 2]),
        (Plan(0, 1, 4), 10, 1, [4]),
        (Plan(1, 1, 4), 0, 0, []),
        (Plan(1, 2, 4), 10, 2, [4, 4]),
        (Plan(1, 7, 4), 10, 7, [4, 4, 2]),
        (Plan(3, 0, 0), 10, 3, [10]),
        (Plan(2, 0, 4, "drop"), 10, 4, [4, 4]),
        (Plan(2, 0, 4, "fill"), 10, 6, [4, 4, 4]),
        (Plan(1, 5, 8, "drop"), 5, 0, []),
        (Plan(1, 0, 8, "fill"), 5, 1, [5]),
        (Plan(2, 3, 4), 0, 0, []),
        (Plan(1, 0, 4), 1, 1, [1]),
    ],
)
def test_steps_are_counted_as_they_are_taken(plan: Plan, examples: int, count: int, lengths: list[int]) -> None:
    assert plan.count(examples) == len(plan.schedule(rng(), examples)) == count
    assert plan.lengths(examples) == lengths


def test_by_poisson_each_sample_comes_by_a_chance_of_its_own() -> None:
    """4 of 10 in the mean, in as many batches; all of them where a batch is as large as the data."""
    batches = Plan(400, 0, 4, poisson=True).schedule(rng(), 10)
    assert len(batches) == 400 * 3
    counts = np.bincount(np.concatenate(batches), minlength=10) / len(batches)
    assert np.abs(counts - 0.4).max() < 0.06, "four standard deviations"
    assert len({len(batch) for batch in batches}) > 5
    assert len(Plan(1, 7, 4, poisson=True).schedule(rng(), 10)) == 7
    for size in (0, 10, 99):
        (whole,) = Plan(1, 0, size, poisson=True).schedule(rng(), 10)
        assert whole.tolist() == list(range(10))


def test_keys_are_addresses() -> None:
    key = Key(7)
    assert key.at("order", 3, 5).random() == key.at("order", 3, 5).random()
    draws = {
        Key(seed).at(stream, round, client).random()
        for seed in (0, 1)
        for stream in ("a", "b")
        for round in (-1, 0, 1)
        for client in (-1, 0, 1)
    }
    assert len(draws) == 36
    numbers = [key.number("model", round) for round in range(20)]
    assert all(0 <= number < 2**63 for number in numbers)
    assert max(numbers) >= 2**62, "all of the bits are drawn"


def test_a_clients_key_is_a_hash_of_the_runs() -> None:
    wanted = int.from_bytes(hashlib.sha256(b"accord client 7 3").digest(), "big")
    assert Key(7).client(3) == Key(wanted)
    keys = {Key(seed).client(client).seed for seed in (0, 1, 7) for client in range(50)}
    assert len(keys) == 150
    assert Key(7).client(3).at("order.train", 2).random() == Key(wanted).at("order.train", 2).random()
    assert Key(7).client(3).at("order.train", 2).random() != Key(7).at("order.train", 2, 3).random()
