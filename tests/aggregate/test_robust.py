"""Robust rules: by hand, against loops, and under attack."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.aggregate import EMA, FedAvgM, Mean, ServerOptimizer
from accord.aggregate.robust import Krum, Median, NormClip, TrimmedMean, number_of, squared_distances
from accord.core.algorithm import Aggregator
from accord.core.tensors import Tree
from accord.core.types import Replies, Result
from accord.errors import RunError

few = settings(deadline=None, max_examples=25)


def answers(values: Sequence[Sequence[float]], **more: Sequence[float]) -> Replies:
    """One tensor [3]-like `w` per client; further trees by name."""
    results = []
    for place, value in enumerate(values):
        reply = {"model": {"w": torch.tensor(value, dtype=torch.float64)}}
        reply |= {tree: {"b": torch.tensor(column[place], dtype=torch.float64)} for tree, column in more.items()}
        results.append(Result(reply, {}, {}))
    return Replies(tuple(range(len(values))), tuple(results), torch.arange(1, len(values) + 1), {})


def fold(rule: Aggregator, values: Sequence[Sequence[float]], start: Sequence[float] | None = None) -> list[float]:
    begun = torch.zeros(len(values[0]), dtype=torch.float64) if start is None else torch.tensor(start).double()
    return rule({"model": {"w": begun}}, "model", answers(values))["model"]["w"].tolist()


def cloud(seed: int, count: int, size: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, size))


# median --------------------------------------------------------------------------------------------------------
def test_median_by_hand() -> None:
    assert fold(Median(), [[1, 9], [5, -2], [100, 0]]) == [5, 0]
    assert fold(Median(), [[1, 9], [5, -2], [100, 0], [3, 1]]) == [4, 0.5]
    assert fold(Median(), [[7, 8]]) == [7, 8]


@given(st.integers(0, 9999), st.integers(1, 9))
@few
def test_median_is_numpys(seed: int, count: int) -> None:
    values = cloud(seed, count)
    assert fold(Median(), values.tolist()) == pytest.approx(np.median(values, axis=0).tolist())


@given(st.integers(0, 9999), st.integers(1, 4), st.sampled_from([1e30, -1e30, math.inf, -math.inf, math.nan]))
@few
def test_a_minority_cannot_move_the_median_out_of_the_honest_range(seed: int, hostile: int, evil: float) -> None:
    honest = cloud(seed, hostile + 1)
    found = np.array(fold(Median(), [*honest.tolist(), *[[evil] * 4] * hostile]))
    assert (found >= honest.min(0)).all()
    assert (found <= honest.max(0)).all()


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(0.34)])
def test_of_counters_the_largest_is_kept(rule: Aggregator) -> None:
    """Batches seen by batch norm: no median, no mean of whole numbers."""
    results = tuple(Result({"buffers": {"n": torch.tensor(n)}}, {}, {}) for n in (7, 40, 3))
    replies = Replies((0, 1, 2), results, torch.ones(3), {})
    assert int(rule({"buffers": {"n": torch.tensor(0)}}, "buffers", replies)["buffers"]["n"]) == 40


# trimmed mean --------------------------------------------------------------------------------------------------
def test_trimmed_mean_by_hand() -> None:
    assert fold(TrimmedMean(0.25), [[1], [2], [4], [1000]]) == [3]
    assert fold(TrimmedMean(0.4), [[9], [1], [2], [4], [1000]]) == [4]


@given(st.integers(0, 9999), st.integers(1, 12), st.sampled_from([0.0, 0.1, 0.25, 0.49]))
@few
def test_trimmed_mean_against_a_loop(seed: int, count: int, trim: float) -> None:
    values, cut = cloud(seed, count), int(trim * count + 1e-9)
    expected = [np.mean(sorted(column)[cut : count - cut]) for column in values.T]
    assert fold(TrimmedMean(trim), values.tolist()) == pytest.approx(expected)


def test_nothing_to_trim_is_the_mean_to_the_bit() -> None:
    values = cloud(0, 7).tolist()
    assert fold(TrimmedMean(0.1), values) == fold(Mean("uniform"), values)


@given(st.integers(0, 9999), st.integers(1, 3), st.sampled_from([1e30, -math.inf, math.nan]))
@few
def test_those_trimmed_have_no_say(seed: int, hostile: int, evil: float) -> None:
    honest = cloud(seed, 9 - hostile)
    found = np.array(fold(TrimmedMean(hostile / 9), [*honest.tolist(), *[[evil] * 4] * hostile]))
    assert (found >= honest.min(0)).all()
    assert (found <= honest.max(0)).all()


def test_a_share_of_a_number() -> None:
    assert number_of(100, 0.29) == 29  # 0.29 * 100 is 28.999999999999996
    assert number_of(30, 0.1) == 3
    assert number_of(9, 0.1) == 0


# krum ----------------------------------------------------------------------------------------------------------
def scores(values: np.ndarray, f: int) -> list[float]:
    """Sum of the squared distances to the k - f - 2 nearest others, one pair at a time."""
    count = len(values)
    return [
        sum(sorted(float(((values[i] - values[j]) ** 2).sum()) for j in range(count) if j != i)[: count - f - 2])
        for i in range(count)
    ]


def test_krum_by_hand() -> None:
    """Five on a line, f = 1, two neighbours each: 0 -> 1 + 4, 1 -> 1 + 1, 2 -> 1 + 4, 5 -> 9 + 16, 50 far off."""
    line = [[0.0], [1], [2], [5], [50]]
    assert fold(Krum(0.2), line) == [1]
    assert fold(Krum(0.2, keep=3), line) == [1]  # 0, 1 and 2
    assert fold(Krum(0.2, keep=0), line) == [2]  # all but one: 0, 1, 2 and 5


@given(st.integers(0, 9999), st.integers(3, 12), st.sampled_from([0.0, 0.1, 0.2]), st.integers(1, 4))
@few
def test_krum_against_a_loop(seed: int, count: int, hostile: float, keep: int) -> None:
    values = cloud(seed, count)
    best = np.argsort(scores(values, int(hostile * count + 1e-9)), kind="stable")[:keep]
    assert fold(Krum(hostile, keep), values.tolist()) == pytest.approx(values[best].mean(0).tolist())


@given(st.integers(0, 9999), st.integers(1, 3), st.sampled_from([10.0, 1e30, math.inf, math.nan]))
@few
def test_krum_takes_an_honest_model(seed: int, hostile: int, evil: float) -> None:
    """Colluding clients, all alike, are too few to be each other's neighbours."""
    honest = cloud(seed, 2 * hostile + 5) * 0.1
    values = [[evil] * 4] * hostile + honest.tolist()
    share = (hostile + 0.5) / len(values)
    assert fold(Krum(share), values) in [pytest.approx(row) for row in honest.tolist()]


def test_krum_chooses_buffers_with_their_model() -> None:
    replies = answers([[0.0], [1], [2], [5], [50]], buffers=[10, 20, 30, 40, 50])
    state: dict[str, Tree] = {"model": {"w": torch.zeros(1)}, "buffers": {"b": torch.tensor(0.0)}}
    assert float(Krum(0.2)(state, "buffers", replies)["buffers"]["b"]) == 20
    assert float(Krum(0.2, keep=3)(state, "buffers", replies)["buffers"]["b"]) == 20


def test_krum_with_all_kept_is_the_mean_to_the_bit() -> None:
    values = cloud(0, 7).tolist()
    assert fold(Krum(0.0, keep=7), values) == fold(Mean("uniform"), values)


def test_krum_with_few_answers() -> None:
    assert fold(Krum(), [[3]]) == [3]
    assert fold(Krum(), [[3], [5]]) == [3]
    assert fold(Krum(keep=0), [[3], [5]]) == [4]
    assert fold(Krum(keep=9), [[3], [5]]) == [4]


def test_krum_refuses_more_hostile_clients_than_it_can_bear() -> None:
    with pytest.raises(RunError, match="4 hostile clients among 10 answers: it needs at least 11"):
        fold(Krum(0.4), [[float(i)] for i in range(10)])


@given(st.integers(0, 9999), st.integers(1, 6))
@few
def test_squared_distances(seed: int, count: int) -> None:
    values = cloud(seed, count)
    found = squared_distances(answers(values.tolist()), "model")
    for i, j in itertools.product(range(count), repeat=2):
        assert float(found[i, j]) == pytest.approx(float(((values[i] - values[j]) ** 2).sum()), abs=1e-12)


def test_what_is_not_finite_is_infinitely_far_away() -> None:
    found = squared_distances(answers([[0.0], [3.0], [math.nan], [math.inf], [1e200]]), "model").tolist()
    far = math.inf
    assert found == [
        [0.0, 9.0, far, far, far],
        [9.0, 0.0, far, far, far],
        [far, far, 0.0, far, far],
        [far, far, far, 0.0, far],
        [far, far, far, far, 0.0],
    ]


# norm clipping -------------------------------------------------------------------------------------------------
def test_norm_clip_by_hand() -> None:
    """Changes (3, 4) of norm 5 and (0, 1): the first is halved; samples 1 and 2 weigh the mean."""
    assert fold(NormClip(2.5), [[3, 4], [0, 1]]) == pytest.approx([0.5, 4 / 3])
    assert fold(NormClip(2.5, Mean("uniform")), [[13, 4], [10, 1]], [10, 0]) == pytest.approx([10.75, 1.5])


@given(st.integers(0, 9999), st.floats(0.1, 5.0), st.sampled_from([1.0, 1e3, 1e200]))
@few
def test_no_client_moves_the_model_further_than_the_limit(seed: int, limit: float, size: float) -> None:
    values = cloud(seed, 5) * size
    moved = np.array(fold(NormClip(limit), values.tolist()))
    assert np.linalg.norm(moved) <= limit * (1 + 1e-9)


def test_models_within_the_limit_pass_untouched() -> None:
    values = cloud(0, 5).tolist()
    assert fold(NormClip(1e9), values) == fold(Mean(), values)


@pytest.mark.parametrize("evil", [math.nan, math.inf])
def test_what_is_not_finite_counts_as_no_change(evil: float) -> None:
    assert fold(NormClip(5.0, Mean("uniform")), [[evil, 1], [4, 3]], [2, 1]) == [3, 2]


def test_a_change_of_just_the_limit_is_not_touched() -> None:
    start, model = {"w": torch.tensor([0.1, 0.0])}, {"w": torch.tensor([0.1, 0.7])}
    length = float(torch.tensor(0.7).double())
    assert NormClip(length).clipped(start, model) is model
    assert NormClip(0.99 * length).clipped(start, model) is not model


def test_the_norm_is_over_all_tensors() -> None:
    start: Tree = {"a": torch.zeros(1), "b": torch.zeros(1), "n": torch.tensor(3)}
    model: Tree = {"a": torch.tensor([3.0]), "b": torch.tensor([4.0]), "n": torch.tensor(9)}
    clipped = NormClip(1.0).clipped(start, model)
    assert [float(clipped[n]) for n in "ab"] == pytest.approx([0.6, 0.8])
    assert clipped["n"] == 9, "counters are not clipped"


# all -----------------------------------------------------------------------------------------------------------
RULES = [Median(), TrimmedMean(0.3), Krum(0.2), Krum(0.2, keep=0), NormClip(1.0)]


@pytest.mark.parametrize("rule", RULES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_order_does_not_matter(rule: Aggregator) -> None:
    values = cloud(1, 6)
    if isinstance(rule, NormClip):
        rule = NormClip(1.0, Mean("uniform"))  # the samples go with the place in these answers
    assert fold(rule, values.tolist()) == pytest.approx(fold(rule, values[::-1].tolist()))


@pytest.mark.parametrize("rule", RULES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_counters_keep_the_largest_and_unsent_names_stay(rule: Aggregator) -> None:
    results = [
        Result({"model": {"w": torch.tensor([float(v)]), "n": torch.tensor(v)}}, {}, {}) for v in (4, 4, 4, 4, 4)
    ]
    replies = Replies(tuple(range(5)), tuple(results), torch.ones(5), {})
    state: dict[str, Tree] = {"model": {"w": torch.tensor([4.0]), "n": torch.tensor(0), "home": torch.tensor(7.0)}}
    new = rule(state, "model", replies)["model"]
    assert float(new["home"]) == 7
    assert new["n"] == 4
    assert not new["n"].is_floating_point()
    assert new["w"].tolist() == [4]


@pytest.mark.parametrize("rule", RULES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_rules_go_inside_others(rule: Aggregator) -> None:
    """Half of the way, and a server step with lr 1 and no momentum: the rule's own result."""
    values = cloud(2, 6).tolist()
    plain = np.array(fold(rule, values))
    assert fold(EMA(0.5, rule), values) == pytest.approx((plain / 2).tolist())
    outer = ServerOptimizer(FedAvgM(1.0, 0.0), rule)
    begun = {"w": torch.zeros(4, dtype=torch.float64)}
    moved = outer({"model": begun, **outer.state("model", begun)}, "model", answers(values))["model"]["w"]
    assert moved.tolist() == pytest.approx(plain.tolist())


def test_lengths_are_taken_in_double_precision() -> None:
    """1e30 squared is beyond single precision; the change still has a direction."""
    start, model = {"w": torch.zeros(2)}, {"w": torch.tensor([3e30, 4e30])}
    assert NormClip(5.0).clipped(start, model)["w"].tolist() == pytest.approx([3.0, 4.0])


def test_counters_do_not_set_models_apart() -> None:
    results = tuple(
        Result({"model": {"w": torch.tensor([w]), "n": torch.tensor(n)}}, {}, {}) for w, n in ((0.0, 1), (3.0, 100))
    )
    replies = Replies((0, 1), results, torch.ones(2), {})
    assert squared_distances(replies, "model").tolist() == [[0.0, 9.0], [9.0, 0.0]]


def test_other_trees_of_an_answer_pass_through_clipping() -> None:
    class Reading(Mean):
        def __call__(self, state: dict[str, Tree], tree: str, replies: Replies) -> dict[str, Tree]:  # type: ignore[override]
            return {tree: {"w": torch.stack([one["b"] for one in replies.each("other")])}}

    found = NormClip(1.0, Reading())({"model": {"w": torch.zeros(1)}}, "model", answers([[9.0], [0.0]], other=[3, 4]))
    assert found["model"]["w"].tolist() == [3, 4]


def test_krum_chooses_nobody_for_a_tree_without_values() -> None:
    """Not even where it would refuse to choose: four of ten are more than it can bear."""
    assert Krum(0.4)({"buffers": {}}, "buffers", answers([[float(i)] for i in range(10)])) == {}
