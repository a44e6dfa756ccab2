"""Who is asked, who drops out and who never trains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import accord
from accord.config import load_config
from accord.core.keys import Key
from accord.core.types import World
from accord.engine.exchange import DROPPED_OUT, EmptyRound
from accord.engine.federation import Federation
from accord.sampling import Cyclic, Everyone, Uniform, Weighted
from support.federation import TinyRun, tiny_data

SIZES = np.array([5, 0, 40, 10, 20, 25])


def world(round: int, members: tuple[int, ...] = (0, 2, 3, 4, 5), seed: int = 3) -> World:
    return World(round, members, SIZES, Key(seed))


def test_clients_drop_out_at_the_rate_and_each_time_anew() -> None:
    data = tiny_data(sizes=(2,) * 40)
    run = TinyRun("fedavg", data=data)
    away = np.zeros((30, 40), dtype=bool)
    for round in range(30):
        exchange = run.federation.exchange(run.executor, run.store, round)
        exchange.drop_rate = 0.3
        replies = exchange("train", range(40), run.algorithm.message(run.state))
        away[round, sorted(exchange.missing)] = True
        assert set(exchange.missing.values()) == {DROPPED_OUT}
        assert sorted([*replies.ids, *exchange.missing]) == list(range(40))
    # 1200 draws: the share has a standard deviation of 0.013, that of a client in 30 rounds 0.084
    assert abs(away.mean() - 0.3) < 0.05
    assert 0.05 < away.mean(0).std() < 0.12, "clients drop out for themselves"
    assert 0.04 < away.mean(1).std() < 0.11, "rounds differ"
    assert len({tuple(row) for row in away}) == 30


def test_nobody_drops_out_of_a_rehearsal_or_at_rate_zero() -> None:
    sets = ["clients.drop_rate=0.9", "partition.clients=6", "data.limit=120", "executor=sequential", "model.name=mlp"]
    federation = Federation.build(load_config(None, sets))
    executor = federation.executor()
    with federation.memory() as store:
        state = federation.first_state(federation.exchange(executor, store, 0))
        message = federation.algorithm.message(state)
        rehearsal = federation.exchange(executor, store, 0, rehearsal=True)
        assert rehearsal("train", range(6), message).ids == tuple(range(6))
        assert rehearsal.missing == {}
        real = federation.exchange(executor, store, 0)
        assert real.drop_rate == 0.9
        try:
            assert len(real("train", range(6), message)) < 6
        except EmptyRound:
            assert sorted(real.missing) == list(range(6))


@pytest.mark.parametrize("sampler", ["uniform", "weighted", "cyclic"])
def test_unseen_clients_never_train(tmp_path: Path, sampler: str) -> None:
    sets = ["rounds=8", "data.limit=160", "partition.clients=7", "partition.unseen=2", f"clients.sampler={sampler}"]
    sets += ["clients.count=3", "executor=sequential", "model.name=mlp", "model.hidden=[4]", f"out={tmp_path}"]
    config = load_config(None, [*sets, "partition.name=iid", "partition.seed=5"])
    unseen = Federation.build(config).data.unseen
    assert len(unseen) == 2
    outcome = accord.run(config)
    asked = {k for record in outcome.metrics for k in record["cohort"]}
    assert all(len(record["cohort"]) == 3 for record in outcome.metrics)
    assert asked == set(range(7)) - unseen, "everybody else did"


def test_uniform_asks_everyone_alike() -> None:
    asked = [Uniform(2)({}, world(round)) for round in range(400)]
    assert all(len(set(cohort)) == 2 and cohort == sorted(cohort) for cohort in asked)
    counts = np.bincount(np.concatenate(asked), minlength=6) / 400
    assert counts[1] == 0
    np.testing.assert_allclose(np.delete(counts, 1), 0.4, atol=0.08)
    assert Uniform(9)({}, world(0)) == [0, 2, 3, 4, 5]
    assert (Uniform(9).size(5), Uniform(2).size(5)) == (5, 2)


def test_weighted_asks_by_size_and_never_the_empty() -> None:
    asked = [Weighted(1)({}, world(round)) for round in range(600)]
    counts = np.bincount(np.concatenate(asked), minlength=6) / 600
    np.testing.assert_allclose(counts, SIZES / 100, atol=0.06)
    everyone = Weighted(6)({}, world(0, (0, 1, 2, 3, 4, 5)))
    assert everyone == [0, 2, 3, 4, 5], "a client without samples cannot be drawn"
    assert (Weighted(9).size(5), Weighted(2).size(5)) == (5, 2)


def test_cyclic_asks_one_after_another() -> None:
    asked = [Cyclic(2)({}, world(round)) for round in range(5)]
    assert sorted(k for cohort in asked for k in cohort) == sorted([0, 2, 3, 4, 5] * 2), "twice around in five rounds"
    assert not set(asked[0]) & set(asked[1]), "two rounds have no client in common"
    assert Cyclic(2)({}, world(5)) == asked[0]
    other = [Cyclic(2)({}, world(round, seed=4)) for round in range(5)]
    assert other != asked
    assert (Cyclic(9).size(5), Cyclic(2).size(5)) == (5, 2)
    assert Cyclic(9)({}, world(3)) == [0, 2, 3, 4, 5]


def test_everyone_is_everyone() -> None:
    assert Everyone()({}, world(7)) == [0, 2, 3, 4, 5]
    assert Everyone().size(5) == 5


def test_cohorts_follow_from_seed_and_round_alone() -> None:
    for sampler in (Uniform(3), Weighted(3)):
        first = [sampler({}, world(round)) for round in range(6)]
        assert first == [sampler({}, world(round)) for round in range(6)]
        assert len({tuple(cohort) for cohort in first}) > 1
        assert first != [sampler({}, world(round, seed=4)) for round in range(6)]
