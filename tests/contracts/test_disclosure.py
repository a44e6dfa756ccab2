"""What leaves a client is what was declared: every tree, of every task of every method, and of the kind it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import accord.authoring as fl
from accord.core.disclosure import ANYTHING, GRAVEST, Disclosure, declared, disclosures, kind_of
from accord.core.plan import Plan
from accord.core.tensors import Tree, Trees
from accord.core.types import Exchange, Replies
from support.cases import CASES, start
from support.federation import TinyRun
from support.methods import tiny
from support.personal import FILLED, norm_model


class Watching:
    """An exchange that keeps what every client sent, by task and tree."""

    def __init__(self, inner: Exchange, seen: dict[str, dict[str, list[tuple[int, Tree]]]]) -> None:
        self.inner, self.seen = inner, seen

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        replies = self.inner(task, clients, shared, private)
        for client, result in zip(replies.ids, replies.results, strict=True):
            assert all(number.dim() == 0 for number in result.metrics.values())
            for name, tree in result.reply.items():
                if tree:
                    self.seen.setdefault(task, {}).setdefault(name, []).append((client, tree))
        return replies


def sent(run: TinyRun, rounds: int = 2) -> dict[str, dict[str, list[tuple[int, Tree]]]]:
    """All that leaves clients: before the first round, in the rounds, and when the global model is judged."""
    seen: dict[str, dict[str, list[tuple[int, Tree]]]] = {}
    run.state = run.federation.first_state(Watching(run.exchange(), seen))
    for _ in range(rounds):
        exchange = Watching(run.exchange(), seen)
        run.state, _ = run.algorithm.round(run.state, run.world(), exchange)
        run.round += 1
    if "evaluate" in run.algorithm.tasks:
        Watching(run.exchange(), seen)("evaluate", run.world().clients, run.algorithm.judged(run.state))
    return seen


def rows(tree: Tree, width: int) -> Tensor:
    """[R, width] all that has room for a sample, as samples."""
    fits = [t for t in tree.values() if t.is_floating_point() and t.numel() and t.numel() % width == 0]
    return torch.cat([t.double().reshape(-1, width) for t in fits]) if fits else torch.zeros(0, width).double()


def shares(found: Tensor, x: Tensor) -> Tensor:
    """[m, n] of those rows that are means of the n samples, weighted or not: each sample's share in it."""
    solved = torch.linalg.lstsq(x.mT, found.mT).solution
    near = (solved.mT @ x - found).norm(dim=1) <= 1e-6 * found.norm(dim=1)
    convex = (solved >= -1e-6).all(0) & ((solved.sum(0) - 1).abs() < 1e-6)
    return solved.mT[near & convex & (found.norm(dim=1) > 0)]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_every_tree_sent_is_declared_and_is_what_it_says(name: str, settings: dict[str, Any]) -> None:
    run = start(name, settings, with_test=True, rounds=2, plan=Plan(epochs=1, batch_size=8))
    says = disclosures(run.algorithm)
    if run.algorithm.pools_data:
        assert says == {"pooling": {"samples": Disclosure.SAMPLE}}
        return
    seen = sent(run)
    wanted = {task: set(trees) for task, trees in says.items() if trees}
    assert {task: set(trees) for task, trees in seen.items()} == wanted
    site = run.federation.site()
    for task, trees in seen.items():
        for tree, answers in trees.items():
            kind = says[task][tree]
            for client, values in answers:
                x = site.client_data(client).x.double().flatten(1)
                means = shares(rows(values, x.shape[1]), x)
                if kind < Disclosure.MEAN:
                    assert not len(means), (task, tree, "holds means of samples, or samples")
                elif kind is Disclosure.MEAN:
                    assert len(means) == len(values["x"]), "the probe finds means where there are some"
                    assert (means < 1 - 1e-6).all(), "a mean of several samples"
                else:
                    assert len(means)
                    assert means.amax(1) == pytest.approx(1), "samples themselves"
                if kind is Disclosure.SCORE:
                    assert all(number.dim() == 0 for number in values.values())


@pytest.mark.parametrize("name", ["fedavg", "fedbn", "fedper", "local"])
def test_running_statistics_are_declared_where_the_network_has_some_and_sends_them(name: str) -> None:
    run = TinyRun(name, model=norm_model(), plan=FILLED, with_test=True)
    train = disclosures(run.algorithm)["train"]
    wanted = {"fedavg": {"model", "buffers"}, "fedbn": {"model"}, "fedper": {"model", "buffers"}, "local": set()}
    assert set(train) == wanted[name]
    assert set(sent(run).get("train", {})) == wanted[name]
    assert train.get("buffers", Disclosure.STATISTIC) is Disclosure.STATISTIC


def test_means_of_one_sample_are_samples() -> None:
    assert disclosures(start("fedmix", {"means": 1}).algorithm)["means"] == {"means": Disclosure.SAMPLE}


class Talkative(fl.SampleLoss):
    """Sends a sample and does not say so."""

    def finish(self, model: fl.Model, job: fl.Job, carry: fl.Carry) -> tuple[fl.Trees, fl.Trees]:
        return {"secret": {"x": job.data.x[:1]}}, {}


def test_a_tree_without_a_declaration_counts_as_the_gravest() -> None:
    run = tiny(lambda setup: setup.method(setup.local(Talkative()), {}))
    train = disclosures(run.algorithm)["train"]
    assert "secret" not in train
    assert kind_of(train, "secret") is GRAVEST is Disclosure.SAMPLE
    assert kind_of(train, "model") is Disclosure.UPDATE


def test_a_task_that_says_nothing_counts_as_the_gravest() -> None:
    @dataclass(frozen=True)
    class Silent:
        pass

    assert declared(Silent()) == {ANYTHING: GRAVEST}  # type: ignore[arg-type]


def test_the_kinds_are_ordered_from_harmless_to_grave() -> None:
    words = [kind.word for kind in sorted(Disclosure)]
    assert words == ["score", "update", "statistic", "mean", "sample"]
