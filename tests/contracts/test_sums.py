"""Where a method says that sums of the answers are enough, its server comes to the same state when every answer is
replaced by the mean of all; where it says that each is needed, it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import accord.authoring as fl
from accord.aggregate import EMA
from accord.aggregate.robust import Median
from accord.aggregate.server_opt import FedAvgM, ServerOptimizer
from accord.core.methods import ALGORITHMS
from accord.core.plan import Plan
from accord.core.sums import reasons_for_each
from accord.core.tensors import Tree, Trees
from accord.core.types import Exchange, Replies, Result
from support.cases import VARIANTS, start
from support.federation import Everyone, tiny_data
from support.methods import tiny

# Settings under which a rule is not the plain mean by chance, with so few and so small clients.
BITING: dict[str, dict[str, Any]] = {"trimmed_mean": {"trim": 0.3}, "norm_clip": {"limit": 0.01}}
BITING["fedbuff"] = {"buffer": 4}  # all of them: the mean is that of everybody who was asked
CASES = [
    pytest.param(name, settings, id=f"{name}-{number}" if number else name)
    for name in ALGORITHMS
    for number, settings in enumerate([BITING.get(name, {}), *VARIANTS.get(name, [])])
]


class NoMean(Exception):
    """The clients' answers have different shapes."""


def mean_of(trees: Sequence[Tree]) -> Tree:
    """Alike for all, as clients of one size have the same weight under every rule; counters are alike anyway."""
    found: Tree = {}
    for name in trees[0]:
        values = [tree[name] for tree in trees]
        if len({value.shape for value in values}) > 1:
            raise NoMean
        real = values[0].is_floating_point()
        found[name] = torch.stack(values).mean(0) if real else torch.stack(values).double().mean(0).to(values[0].dtype)
    return found


class Blurred:
    """An exchange after which no client's answer can be told from another's: what secure aggregation leaves."""

    def __init__(self, inner: Exchange) -> None:
        self.inner = inner

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        replies = self.inner(task, clients, shared, private)
        reply = {name: mean_of(list(replies.each(name))) for name in replies.results[0].reply}
        metrics = mean_of([result.metrics for result in replies.results])
        return replace(replies, results=tuple(Result(reply, result.memory, metrics) for result in replies.results))


def end(name: str, settings: dict[str, Any], *, blurred: bool) -> Trees:
    data = tiny_data(sizes=(12, 12, 12, 12), dtype=torch.get_default_dtype())
    plan = Plan(epochs=1, batch_size=6)
    run = start(name, settings, data=data, sampler=Everyone(), rounds=1, plan=plan)
    door = Blurred if blurred else lambda exchange: exchange
    state = run.federation.first_state(door(run.exchange()))
    return run.algorithm.round(state, run.world(), door(run.exchange()))[0]


def near(a: Trees, b: Trees) -> bool:
    return a.keys() == b.keys() and all(
        torch.allclose(a[tree][leaf].double(), b[tree][leaf].double(), rtol=1e-6, atol=1e-7)
        for tree in a
        for leaf in a[tree]
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_a_method_needs_each_answer_where_it_says_so_and_only_there(name: str, settings: dict[str, Any]) -> None:
    algorithm = start(name, settings).algorithm
    needed = reasons_for_each(algorithm)
    assert not any("does not say" in why for why in needed)
    if algorithm.pools_data:
        assert needed == ["gathers all samples"]
        return
    try:
        same = near(end(name, settings, blurred=False), end(name, settings, blurred=True))
    except NoMean:
        same = False
    assert same == (not needed), needed


def test_a_rule_inside_another_decides() -> None:
    for outer in (EMA(0.5, Median()), ServerOptimizer(FedAvgM(), Median())):
        assert outer.needs_each == Median.needs_each
    assert EMA(0.5).needs_each == ServerOptimizer(FedAvgM()).needs_each == ""


@dataclass(frozen=True)
class Largest:
    """A rule of a user's own that says nothing."""

    def state(self, tree: str, value: Tree) -> Trees:
        return {}

    def __call__(self, state: fl.State, tree: str, replies: Replies) -> Trees:
        return {tree: {name: t.amax(0) for name, t in replies.stacked(tree).items()}}


def test_who_says_nothing_is_taken_to_need_each() -> None:
    run = tiny(
        lambda setup: setup.method(setup.local(fl.SampleLoss()), {"model": Largest(), "buffers": EMA(0.5, Largest())})
    )
    assert reasons_for_each(run.algorithm) == [
        "runs Largest, which does not say that sums are enough for it",
        "runs EMA, which does not say that sums are enough for it",
    ]
