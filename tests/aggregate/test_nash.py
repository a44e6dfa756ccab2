"""Nash bargaining: the solver against its equations and an independent method, the rule against hand-made cases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.aggregate import blocks, nash
from accord.aggregate.mean import Mean
from accord.aggregate.nash import Nash, gram_matrix, solve_bargaining
from accord.core.tensors import Tree, Trees
from accord.core.types import Replies, Result


def deviations(seed: int, clients: int, common: float = 0.5, size: int = 60) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, clients)) + common * rng.normal(size=(size, 1))


def by_coordinates(gram: Any, power: Any, sweeps: int = 3000) -> Any:
    """Minimise f one p_k at a time: the positive root of g_kk p^2 + r p - b_k = 0, r from the other clients."""
    p = np.ones(len(gram))
    for _ in range(sweeps):
        for k in range(len(p)):
            r = gram[k] @ p - gram[k, k] * p[k]
            p[k] = 2 * power[k] / (r + math.sqrt(r * r + 4 * gram[k, k] * power[k]))
    return p


def test_orthogonal_clients_get_the_inverse_of_their_length() -> None:
    p = solve_bargaining(np.diag([25.0, 1.0, 0.04]))
    np.testing.assert_allclose(p, [0.2, 1.0, 5.0], rtol=1e-12)


@pytest.mark.parametrize("cosine", [0.9, 0.0, -0.5, -0.99])
def test_two_clients_by_hand(cosine: float) -> None:
    # Unit deviations: (1 + c) p = 1 / p.
    p = solve_bargaining(np.array([[1.0, cosine], [cosine, 1.0]]))
    np.testing.assert_allclose(p, [1 / math.sqrt(1 + cosine)] * 2, rtol=1e-12)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), clients=st.integers(1, 30), common=st.floats(-1, 3), skew=st.floats(0, 3))
def test_equations_length_and_gain(seed: int, clients: int, common: float, skew: float) -> None:
    d = deviations(seed, clients, common)
    power = np.random.default_rng(seed).uniform(0.01, 1, clients) ** skew
    power *= clients / power.sum()
    p = solve_bargaining(d.T @ d, power)
    assert p is not None
    assert (p > 0).all()
    gain = d.T @ (d @ p)
    np.testing.assert_allclose(p * gain / power, 1, atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(d @ p), math.sqrt(clients), rtol=1e-10)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), clients=st.integers(2, 20))
def test_scaling_a_client_scales_its_weight_only(seed: int, clients: int) -> None:
    d = deviations(seed, clients)
    c = 10 ** np.random.default_rng(seed).uniform(-4, 4, clients)
    p, q = solve_bargaining(d.T @ d), solve_bargaining((d * c).T @ (d * c))
    assert p is not None
    assert q is not None
    np.testing.assert_allclose(q * c, p, rtol=1e-9)
    np.testing.assert_allclose((d * c) @ q, d @ p, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("clients", [2, 7, 20])
def test_agrees_with_coordinate_descent(clients: int) -> None:
    d = deviations(3, clients, 1.0)
    power = np.random.default_rng(4).dirichlet(np.ones(clients)) * clients
    for b in (np.ones(clients), power):
        np.testing.assert_allclose(solve_bargaining(d.T @ d, b), by_coordinates(d.T @ d, b), rtol=1e-9)


@pytest.mark.parametrize("power", [1e-6, 1e-3, 1e3])
def test_those_with_little_power_get_their_share_as_exactly(power: float) -> None:
    """Two pairs that have nothing to do with each other, one orthogonal, the other with cosine -0.9."""
    gram = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -0.9], [0.0, 0.0, -0.9, 1.0]])
    p = solve_bargaining(gram, np.array([1.0, 1.0, power, power]))
    # (1 - 0.9) p = power / p
    np.testing.assert_allclose(p, [1.0, 1.0, math.sqrt(10 * power), math.sqrt(10 * power)], rtol=1e-10)


def test_duplicates_act_as_one_client_with_their_joint_power() -> None:
    d = deviations(5, 3)
    twice = d[:, [0, 0, 1, 2]]
    p = solve_bargaining(twice.T @ twice)
    merged = solve_bargaining(d.T @ d, np.array([2.0, 1.0, 1.0]))
    assert p is not None
    assert merged is not None
    np.testing.assert_allclose(p[0], p[1], rtol=1e-12)
    np.testing.assert_allclose([2 * p[0], p[2], p[3]], merged, rtol=1e-9)


def test_a_client_that_did_not_move_is_left_out() -> None:
    d = deviations(6, 4)
    d[:, 2] = 0
    p = solve_bargaining(d.T @ d)
    others = d[:, [0, 1, 3]]
    assert p is not None
    assert p[2] == 0
    np.testing.assert_allclose(p[[0, 1, 3]], solve_bargaining(others.T @ others), rtol=1e-12)
    np.testing.assert_array_equal(solve_bargaining(np.zeros((3, 3))), np.zeros(3))
    # Orthogonal, so that p_k = sqrt(b_k) / |D_k|, each with the power of its own.
    found = solve_bargaining(np.diag([0.0, 4.0, 1.0]), np.array([9.0, 16.0, 25.0]))
    np.testing.assert_allclose(found, [0.0, 2.0, 5.0], rtol=1e-12)


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 0], [-1, 0]],
        [[1, 0], [-7, 0], [0, 1]],
        [[1, 0], [-0.5, math.sqrt(0.75)], [-0.5, -math.sqrt(0.75)]],  # 120 degrees apart
        [[1, 0], [-1, 1e-6]],  # cancel but for rounding
    ],
)
def test_no_agreement(rows: list[list[float]]) -> None:
    d = np.array(rows).T
    assert solve_bargaining(d.T @ d) is None


@pytest.mark.parametrize("room", [1e-4, 1e-5, 1e-6, 1e-7, 2e-8])
def test_those_who_all_but_cancel_still_agree(room: float) -> None:
    """Cosine room - 1: (1 + c) p = 1 / p, as exactly as numbers of that size cancel."""
    cosine = room - 1
    p = solve_bargaining(np.array([[1.0, cosine], [cosine, 1.0]]))
    np.testing.assert_allclose(p, [1 / math.sqrt(1 + cosine)] * 2, rtol=1e-15 / room)


def test_numbers_that_are_none_give_no_agreement() -> None:
    assert solve_bargaining(np.full((2, 2), np.nan)) is None


def test_a_hundred_clients_are_solved() -> None:
    d = deviations(7, 100, size=300)
    gram = d.T @ d
    p = solve_bargaining(gram)
    assert np.abs(gram @ p - 1 / p).max() < 1e-10


def test_the_order_of_an_answers_leaves_changes_no_bit() -> None:
    """1e16 + 1 + 1 is 1e16, and 1 + 1 + 1e16 is not: leaves are summed by name, a to c."""
    state: dict[str, Tree] = {"model": dict.fromkeys("abc", torch.zeros(1))}
    for order in ("abc", "cba", "bca"):
        leaves = {leaf: torch.tensor([1e8 if leaf == "c" else 1.0]) for leaf in order}
        replies = Replies((0,), (Result({"model": leaves}, {}, {}),), torch.ones(1), {})
        assert float(gram_matrix(state, ("model",), replies)[0, 0]) == 1e16 + 2


# the rule ---------------------------------------------------------------------------------------------------------


def replies_of(*clients: tuple[list[float], list[float]], examples: tuple[int, ...]) -> Replies:
    results = tuple(
        Result({"model": {"w": torch.tensor(w)}, "relations": {"r": torch.tensor(r)}}, {}, {}) for w, r in clients
    )
    return Replies(tuple(range(len(clients))), results, torch.tensor(examples), {})


def server(rule: Nash) -> Trees:
    state: Trees = {
        "model": {"fixed": torch.tensor([9.0]), "w": torch.tensor([1.0, 1.0])},
        "relations": {"r": torch.tensor([2.0])},
    }
    return {**state, **rule.state("model", state["model"])}


# D_1 = (4, 0 | 3) of length 5, D_2 = (0, 1 | 0) of length 1, orthogonal: p = (1/5, 1) with equal power.
TWO = replies_of(([5.0, 1.0], [5.0]), ([1.0, 2.0], [2.0]), examples=(1, 3))


@pytest.mark.parametrize(
    ("rule", "weights"),
    [
        (Nash(("relations",), "raw", "uniform"), (0.2, 1.0)),
        (Nash(("relations",), "sum", "uniform"), (1 / 6, 5 / 6)),
        (Nash(("relations",), "radius", "uniform", 0.5), (0.2 * 0.5 / 2**0.5, 0.5 / 2**0.5)),
        (Nash(("relations",), "radius", "uniform"), (0.2 * 2**0.5, 2**0.5)),  # radius K = 2
        # FedAvg's step is D_1 / 4 + 3 D_2 / 4, of squared length 25 / 16 + 9 / 16 = 34 / 16.
        (Nash(("relations",), "avg-norm", "uniform"), (0.2 * (17 / 16) ** 0.5, (17 / 16) ** 0.5)),
        # Power (1/2, 3/2): p_k = sqrt(b_k) / |D_k|.
        (Nash(("relations",), "raw", "examples"), (0.2 * 0.5**0.5, 1.5**0.5)),
        (Nash(("relations",), "avg-norm", "uniform", cap=1.0), (1 / 6, 5 / 6)),  # 1.2 sqrt(17 / 16) is more than 1
        (Nash(("relations",), "raw", "uniform", cap=1.0), (0.2, 1.0)),
        (Nash(("relations",), "radius", "uniform", 0.5, cap=0.1), (0.2 * 0.5 / 2**0.5, 0.5 / 2**0.5)),
    ],
)
def test_scales_by_hand(rule: Nash, weights: tuple[float, float]) -> None:
    new = rule(server(rule), "model", TWO)
    a, b = weights
    torch.testing.assert_close(new["model"]["w"], torch.tensor([1 + 4 * a, 1 + b]))
    torch.testing.assert_close(new["relations"]["r"], torch.tensor([2 + 3 * a]))
    assert new["model"]["fixed"].item() == 9  # nobody sent it
    assert {name: int(n) for name, n in new["model.nash"].items()} == {"agreed": 1, "fallbacks": 0}


def test_trees_bargain_together() -> None:
    alone, both = Nash(scale="raw", power="uniform"), Nash(("relations",), "raw", "uniform")
    assert set(alone(server(alone), "model", TWO)) == {"model", "model.nash"}
    torch.testing.assert_close(alone(server(alone), "model", TWO)["model"]["w"], torch.tensor([2.0, 2.0]))
    assert both(server(both), "model", TWO)["model"]["w"][0] < 2


@pytest.mark.parametrize("power", ["examples", "uniform"])
def test_without_agreement_the_step_is_fedavgs_and_is_counted(power: Any) -> None:
    rule = Nash(("relations",), "sum", power)
    state = server(rule)
    opposed = replies_of(([2.0, 1.0], [3.0]), ([-1.0, 1.0], [0.0]), examples=(1, 3))
    new = rule(state, "model", opposed)
    assert torch.equal(new["model"]["w"], Mean()(state, "model", opposed)["model"]["w"])
    assert torch.equal(new["relations"]["r"], Mean()(state, "relations", opposed)["relations"]["r"])
    again = rule({**state, **new}, "model", TWO)
    assert {name: int(n) for name, n in again["model.nash"].items()} == {"agreed": 1, "fallbacks": 1}
    assert int(state["model.nash"]["fallbacks"]) == 0  # the old state is not written to


@pytest.mark.parametrize("scale", ["sum", "raw", "radius", "avg-norm"])
def test_nobody_moved(scale: Any) -> None:
    rule = Nash(("relations",), scale)
    state = server(rule)
    new = rule(state, "model", replies_of(([1.0, 1.0], [2.0]), ([1.0, 1.0], [2.0]), examples=(1, 1)))
    assert torch.equal(new["model"]["w"], state["model"]["w"])
    assert torch.equal(new["relations"]["r"], state["relations"]["r"])


def test_who_did_not_move_takes_nothing_of_the_others_step() -> None:
    """One of three stands still: the others are orthogonal, p = (1/5, 1, 0), and only their sum is one."""
    rule = Nash(("relations",), "sum", "uniform")
    replies = replies_of(([5.0, 1.0], [5.0]), ([1.0, 2.0], [2.0]), ([1.0, 1.0], [2.0]), examples=(1, 3, 2))
    new = rule(server(rule), "model", replies)
    torch.testing.assert_close(new["model"]["w"], torch.tensor([1 + 4 / 6, 1 + 5 / 6]))
    torch.testing.assert_close(new["relations"]["r"], torch.tensor([2 + 3 / 6]))
    nothing = Replies((0, 1), (Result({"model": {}}, {}, {}),) * 2, torch.ones(2), {})
    assert gram_matrix({"model": {}}, ("model",), nothing).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("scale", ["sum", "avg-norm"])
def test_one_reply_is_taken_as_it_is(scale: Any) -> None:
    rule = Nash(("relations",), scale)
    new = rule(server(rule), "model", replies_of(([5.0, 3.0], [-1.0]), examples=(4,)))
    torch.testing.assert_close(new["model"]["w"], torch.tensor([5.0, 3.0]))
    torch.testing.assert_close(new["relations"]["r"], torch.tensor([-1.0]))


def test_blocks_hold_so_many_numbers_of_all_clients_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten values of three clients: of 14 numbers at once four of each, of two at least one of each."""
    sent = [torch.arange(10.0).view(2, 5) + 100 * client for client in range(3)]
    replies = Replies((0, 1, 2), tuple(Result({"model": {"w": w}}, {}, {}) for w in sent), torch.ones(3), {})
    for room, widths in ((14, [4, 4, 2]), (2, [1] * 10), (30, [10]), (1 << 20, [10])):
        monkeypatch.setattr(blocks, "BLOCKS", {"cpu": room})
        found = list(blocks.stacked_blocks(replies, "model", "w"))
        assert [values.shape for _, values in found] == [(3, width) for width in widths]
        assert {values.dtype for _, values in found} == {torch.float64}
        whole = torch.zeros(3, 10)
        for part, values in found:
            whole[:, part] = values.float()
        assert torch.equal(whole, torch.stack(sent).view(3, 10))


def test_the_gram_matrix_does_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    shapes = {"a": (3, 5), "b": (7,), "c": ()}
    state = {"model": {n: torch.tensor(rng.normal(size=s), dtype=torch.float32) for n, s in shapes.items()}}
    sent = [
        {n: t + torch.tensor(rng.normal(size=t.shape), dtype=torch.float32) for n, t in state["model"].items()}
        for _ in range(3)
    ]
    replies = Replies((0, 1, 2), tuple(Result({"model": s}, {}, {}) for s in sent), torch.ones(3), {})
    flat = np.stack([np.concatenate([(s[n] - 0).double().numpy().ravel() for n in shapes]) for s in sent])
    flat = flat - np.concatenate([state["model"][n].double().numpy().ravel() for n in shapes])
    for block in (1, 6, 1 << 22):
        monkeypatch.setattr(blocks, "BLOCKS", {"cpu": block})
        np.testing.assert_allclose(gram_matrix(state, ("model",), replies), flat @ flat.T, rtol=1e-12)


def test_a_solution_that_is_not_found_in_time_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = np.array([[1.0, -0.9], [-0.9, 1.0]])
    assert solve_bargaining(gram) is not None
    monkeypatch.setattr(nash, "ITERATIONS", 1)
    assert solve_bargaining(gram) is None
