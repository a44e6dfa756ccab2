"""Batches cover the data as promised; draws depend on their address alone."""

from __future__ import annotations

import hashlib

import numpy as np
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


def test_nothing_to_do() -> None:
    assert Plan().schedule(rng(), 0) == []
    assert Plan(epochs=0).schedule(rng(), 5) == []
    assert Plan(steps=5, batch_size=8, last_batch="drop").schedule(rng(), 5) == []


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
    assert 0 <= key.number("model") < 2**63


def test_a_clients_key_is_a_hash_of_the_runs() -> None:
    wanted = int.from_bytes(hashlib.sha256(b"accord client 7 3").digest(), "big")
    assert Key(7).client(3) == Key(wanted)
    keys = {Key(seed).client(client).seed for seed in (0, 1, 7) for client in range(50)}
    assert len(keys) == 150
    assert Key(7).client(3).at("order.train", 2).random() == Key(wanted).at("order.train", 2).random()
    assert Key(7).client(3).at("order.train", 2).random() != Key(7).at("order.train", 2, 3).random()
