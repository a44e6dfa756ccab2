"""FedUFO's dynamic sampling: who is chosen, what is measured, when."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.algorithms.fedufo import fedufo
from accord.algorithms.fedufo.performance import Withheld, WorstHalf, held_out
from accord.core.keys import Key
from accord.core.types import State, World
from accord.sampling import Uniform
from support.federation import Given, TinyRun, tiny_data, tiny_model, tiny_setup
from support.fedufo_reference import Options, Reference
from support.reference import forward, samples


def world(clients: list[int], round: int = 0, seed: int = 1, total: int | None = None) -> World:
    sizes = np.ones(total or max(clients) + 1, dtype=np.int64)
    return World(round, clients, sizes, Key(seed))


def state(values: list[float]) -> State:
    return {"performance": {"accuracy": torch.tensor(values)}}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=30),
    st.integers(1, 30),
    st.integers(0, 2**32),
)
def test_half_are_the_worst(values: list[float], count: int, seed: int) -> None:
    """m clients, no two alike, and nobody outside does worse than the worst floor(m / 2) inside."""
    everyone = list(range(len(values)))
    chosen = WorstHalf(Uniform(count), 0)(state(values), world(everyone, seed=seed))
    m = min(count, len(values))
    assert len(set(chosen)) == len(chosen) == m
    assert chosen == sorted(chosen)
    inside = sorted(values[k] for k in chosen)[: m // 2]
    assert inside == sorted(values)[: m // 2]


def test_by_hand() -> None:
    """Of 7 clients 5 are asked: the two worst (4 and 2), and three of the others, each of them now and then."""
    values = [0.9, 0.5, 0.2, 0.8, 0.1, 0.7, 0.6]
    seen = [WorstHalf(Uniform(5), 0)(state(values), world(list(range(7)), round)) for round in range(60)]
    assert all({2, 4} <= set(chosen) for chosen in seen)
    counts = {k: sum(k in chosen for chosen in seen) for k in (0, 1, 3, 5, 6)}
    assert sum(counts.values()) == 180
    assert all(20 < n < 52 for n in counts.values())  # 36 expected, sd 3.8


def test_ties_fall_at_random() -> None:
    seen = {tuple(WorstHalf(Uniform(4), 0)(state([0.5] * 8), world(list(range(8)), round))) for round in range(20)}
    assert len(seen) > 10
    first = [WorstHalf(Uniform(2), 0)(state([0.5] * 8), world(list(range(8)), round)) for round in range(40)]
    assert sum(0 in chosen for chosen in first) < 25, "one of eight alike, not always the one of lowest number"


def test_only_members_are_asked_and_the_order_of_the_roll_is_nothing() -> None:
    values = [0.0, 0.9, 0.8, 0.0, 0.7, 0.6]
    members = [1, 2, 4, 5]
    chosen = WorstHalf(Uniform(2), 0)(state(values), world(members, total=6))
    assert 5 in chosen
    assert set(chosen) <= set(members)
    assert chosen == WorstHalf(Uniform(2), 0)(state(values), world([5, 2, 1, 4], total=6))


def test_before_its_first_round_the_usual_clients_are_asked() -> None:
    roll, usual = list(range(9)), Uniform(4)
    worst = WorstHalf(usual, first_round=3)
    assert [worst(state([0.1] * 9), world(roll, r)) for r in range(3)] == [usual({}, world(roll, r)) for r in range(3)]


def tiny(**given: Any) -> TinyRun:
    data, model = tiny_data(dtype=torch.get_default_dtype()), tiny_model()
    shared = {name: given.pop(name) for name in {"sampler", "rounds", "lr"} & given.keys()}
    return TinyRun(fedufo(tiny_setup(data, model, **shared), **given), data=data, model=model, **shared)


def accuracy(run: TinyRun, client: int) -> float:
    x, y = samples(run, client)
    return float((forward(run.state["model"], x).argmax(1) == y).double().mean())


def test_fresh_performance_is_that_of_the_present_model(float64: None) -> None:
    """Every client in every round of stage two, before that nothing is known."""
    run = tiny(performance="fresh", stage_one_rounds=2, rounds=4, sampler=Uniform(2), lr=0.5)
    run.rounds(2)
    assert run.state["performance"]["accuracy"].tolist() == [-1.0] * 4
    for _ in range(2):
        expected = [accuracy(run, k) for k in range(4)]
        run.rounds(1)
        assert run.state["performance"]["accuracy"].tolist() == pytest.approx(expected)
        assert run.replies is not None
        worst = min(expected)
        assert any(math.isclose(expected[k], worst) for k in run.replies.ids)


def test_stale_performance_is_that_of_the_last_visit(float64: None) -> None:
    run = tiny(terms="cgl", dynamic=True, performance="stale", sampler=Given([0, 1]), lr=0.5, rounds=9)
    known = [-1.0] * 4
    asked: list[tuple[int, ...]] = []
    for _ in range(4):
        present = [accuracy(run, k) for k in range(4)]
        run.rounds(1)
        assert run.replies is not None
        asked.append(run.replies.ids)
        for k in run.replies.ids:
            known[k] = present[k]
        assert run.state["performance"]["accuracy"].tolist() == pytest.approx(known)
    # Half of each pair is the worst client, and those never asked count as worst: soon everyone is known.
    assert set().union(*asked[:3]) >= {k for k in range(4) if known[k] >= 0}
    assert -1.0 not in known


def test_held_out_positions_by_hand() -> None:
    """Thirds of ten begin at 0, 3.33 and 6.67; their middles are 1.67, 5 and 8.33."""
    assert held_out(10, 0.3) == [1, 5, 8]
    assert held_out(4, 0.5) == [1, 3]
    assert held_out(9, 0.1) == held_out(1, 0.9) == held_out(10, 0.0) == []
    assert held_out(10, 0.1) == [5]  # 0.1 * 10 is one, whatever the rounding
    assert held_out(3, 0.99) == [0, 2]
    assert len(held_out(100, 0.29)) == 29  # 0.29 * 100 is 28.999999999999996
    assert held_out(2, 1 - 1e-12) == [1], "one is left to train on, however near to all the share is"


# Of sizes 6, 9, 12 and 15, half: what is held out, and the kept ones that are shown in their place.
HELD = {0: [1, 3, 5], 1: [1, 3, 5, 7], 2: [1, 3, 5, 7, 9, 11], 3: [1, 3, 5, 7, 9, 11, 13]}
INSTEAD = {0: [0, 2, 4], 1: [0, 2, 4, 6], 2: [0, 2, 4, 6, 8, 10], 3: [0, 2, 4, 6, 8, 10, 12]}


@pytest.mark.parametrize("performance", ["fresh", "stale"])
def test_a_held_out_half_is_measured_on_and_never_trained_on(performance: str, float64: None) -> None:
    chosen = {"terms": "all", "dynamic": True, "stage_one_rounds": 0, "performance_share": 0.5}
    run = tiny(**chosen, performance=performance, sampler=Uniform(2), rounds=9)
    assert run.data.sizes.tolist() == [6, 9, 12, 15]
    options = Options(terms=("uad", "cgr", "cgl"))
    reference = Reference(run, options, dict(run.state["model"]), dict(run.state["discriminator"]))
    whole = run.batches

    def batches(client: int, task: str = "train", round: int = 0) -> list[np.ndarray]:
        shown = np.arange(run.data.sizes[client])
        shown[HELD[client]] = INSTEAD[client]
        return [shown[rows] for rows in whole(client, task, round)]

    run.batches = batches  # type: ignore[method-assign]
    for round in range(3):
        held = []
        for k in range(4):
            x, y = (part[HELD[k]] for part in samples(run, k))
            held.append(float((forward(run.state["model"], x).argmax(1) == y).double().mean()))
        run.rounds(1)
        assert run.replies is not None
        reference.round(round, list(run.replies.ids))
        asked = range(4) if performance == "fresh" else run.replies.ids
        assert [float(run.state["performance"]["accuracy"][k]) for k in asked] == pytest.approx(
            [held[k] for k in asked]
        )
        for name, value in reference.w.items():
            torch.testing.assert_close(run.state["model"][name], value, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("count", "share"), [(10, 0.2), (100, 0.9), (300, 0.95)])
def test_kept_samples_stand_in_for_those_held_out_evenly(count: int, share: float) -> None:
    held = held_out(count, share)
    assert len(held) == round(share * count)
    kept = [position for position in range(count) if position not in held]
    job: Any = SimpleNamespace(data=SimpleNamespace(x=torch.zeros(count, 1), y=torch.zeros(count)))
    shown = Withheld(share).begin(tiny_model(), job)["shown"].tolist()
    assert [shown[position] for position in kept] == kept
    stand_ins = [shown[position] for position in held]
    assert stand_ins == sorted(stand_ins)
    times = [stand_ins.count(position) for position in kept]
    assert max(times) - min(times) <= 1
    assert sum(times) == len(held)


def test_as_many_are_asked_as_the_sampler_inside_would_ask() -> None:
    worst = WorstHalf(Uniform(5), 0)
    assert [worst.size(clients) for clients in (3, 5, 9)] == [3, 5, 5]


def test_stale_performance_is_reported_in_stage_one_too(float64: None) -> None:
    """No consensus asks the received model yet, so the report asks it by itself."""
    run = tiny(stage_one_rounds=2, rounds=4, sampler=Given([0, 3]), lr=0.5).rounds(1)
    expected = [accuracy(run, k) for k in (0, 3)]
    run.rounds(1)
    assert run.state["performance"]["accuracy"][[0, 3]].tolist() == pytest.approx(expected)
    assert run.state["performance"]["accuracy"][[1, 2]].tolist() == [-1.0, -1.0]
