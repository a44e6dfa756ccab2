"""Clipping and noise: how long, how wide, where; and that a server under central privacy sees one noisy mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.client import Draws, Request, Work
from accord.core.keys import Key
from accord.core.plan import Plan
from accord.core.tensors import Trees
from accord.core.types import Replies, Result
from accord.errors import RunError
from accord.filters import NO_FILTERS, Budget, Compression, Filters
from accord.filters.changes import applied, changes, clipped, norm
from accord.sampling import Poisson, Uniform


def budget(name: str, *, clip: float = 1.0, noise: float = 1.0, poisson: bool = False, clients: int = 40) -> Budget:
    sampler = Poisson(20) if poisson else Uniform(20)
    found = Budget.of(
        name, {"clip": clip, "noise": noise}, sampler=sampler, sizes=[50] * clients, plan=Plan(), rounds=3
    )
    assert found is not None
    return found


def shared_of() -> Trees:
    return {"model": {"w": torch.full((60, 50), 2.0), "b": torch.zeros(50)}}


def reply_of(seed: int, scale: float = 1.0) -> Trees:
    g = torch.Generator().manual_seed(seed)
    start = shared_of()["model"]
    model = {name: t + scale * torch.randn(t.shape, generator=g) for name, t in start.items()}
    return {"model": model, "control_change": {"w": scale * torch.randn(60, 50, generator=g)}}


def replies_of(*replies: Trees, examples: list[int] | None = None) -> Replies:
    results = tuple(Result(reply, {}, {"steps": torch.tensor(1.0)}) for reply in replies)
    return Replies(tuple(range(len(replies))), results, torch.tensor(examples or [5] * len(replies)), {})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e8, 1e8), min_size=1, max_size=9), min_size=1, max_size=4),
    st.floats(1e-6, 1e6),
)
def test_nothing_is_longer_than_the_limit_after_clipping(values: list[list[float]], limit: float) -> None:
    before = {str(i): {"t": torch.tensor(own, dtype=torch.float64)} for i, own in enumerate(values)}
    after = clipped(before, limit)
    length = float(np.sqrt(sum((np.array(own) ** 2).sum() for own in values)))
    together = torch.cat([tree["t"] for tree in after.values()])
    assert float(together.square().sum().sqrt()) <= limit * (1 + 1e-15)
    if length <= limit:
        assert all(torch.equal(after[name]["t"], before[name]["t"]) for name in before)
    else:  # the same direction
        assert torch.allclose(together * length / limit, torch.cat([t["t"] for t in before.values()]), rtol=1e-9)


def test_an_answer_without_numbers_counts_as_no_change() -> None:
    found = clipped({"m": {"w": torch.tensor([1.0, float("nan"), float("inf")])}}, 1.0)
    assert found["m"]["w"].tolist() == [0.0, 0.0, 0.0]


def test_all_trees_are_one_vector_relative_to_what_was_sent() -> None:
    reply = reply_of(0)
    changed = changes(shared_of(), reply)
    expected = (
        (reply["model"]["w"].double() - 2).square().sum()
        + reply["model"]["b"].double().square().sum()
        + reply["control_change"]["w"].double().square().sum()
    )
    assert norm(changed) == pytest.approx(float(expected) ** 0.5)
    back = applied(shared_of(), reply, clipped(changed, 0.5))
    assert norm(changes(shared_of(), back)) == pytest.approx(0.5, rel=1e-5)  # single precision
    assert back["model"]["w"].dtype == torch.float32


def central(replies: Replies, own: Budget, round: int = 0) -> Replies:
    return Filters(own).together("train", shared_of(), replies, Key(7), round)


@pytest.mark.parametrize("poisson", [False, True])
def test_the_server_sees_one_mean_with_noise_of_the_right_width(poisson: bool) -> None:
    replies = replies_of(*(reply_of(seed, 0.5) for seed in range(4)), examples=[1, 2, 3, 400])
    clip, noise = 3.0, 1.7
    found = central(replies, budget("central", clip=clip, noise=noise, poisson=poisson))
    assert all(result.reply is found.results[0].reply for result in found.results)
    count = 20.0 if poisson else 4.0  # a Poisson cohort is divided by its mean size, which is no secret
    means = {}
    for name in ("model", "control_change"):
        for leaf in replies.results[0].reply[name]:
            own = [changes(shared_of(), r.reply) for r in replies.results]
            factors = [min(1.0, clip / norm(one)) for one in own]
            means[name, leaf] = sum(f * one[name][leaf] for f, one in zip(factors, own, strict=True)) / count
    rest = torch.cat(
        [
            (changes(shared_of(), found.results[0].reply)[name][leaf] - mean).reshape(-1)
            for (name, leaf), mean in means.items()
        ]
    )
    expected = noise * clip / count  # the deviation by hand: sum's noise z C, divided by how many
    n = rest.numel()
    assert n == 6050
    assert float(rest.std()) == pytest.approx(expected, rel=5 / (2 * n) ** 0.5)
    assert abs(float(rest.mean())) < 5 * expected / n**0.5
    again, other = (central(replies, budget("central", poisson=poisson), round=r) for r in (0, 1))
    assert not torch.equal(again.results[0].reply["model"]["w"], other.results[0].reply["model"]["w"])
    # whatever weights a rule gives, they sum to one: it comes to the noisy mean
    by_samples, uniform = found.mean("model"), found.mean("model", "uniform")
    assert torch.allclose(by_samples["w"], uniform["w"], atol=1e-5)


def test_no_client_moves_the_mean_by_more_than_clip() -> None:
    own = budget("central", clip=0.5, noise=1e-9)
    with_it = central(replies_of(reply_of(0), reply_of(1), reply_of(2, 1e6)), own).results[0].reply
    nothing = {**shared_of(), "control_change": {"w": torch.zeros(60, 50)}}
    without = central(replies_of(reply_of(0), reply_of(1), nothing), own).results[0].reply
    moved = {n: {leaf: with_it[n][leaf].double() - t.double() for leaf, t in without[n].items()} for n in without}
    assert norm(moved) <= 0.5 / 3 * (1 + 1e-3)
    assert norm(moved) == pytest.approx(0.5 / 3, rel=1e-3)


def left(filters: Filters, reply: Trees, client: int = 0, task: str = "train", memory: Trees | None = None) -> Result:
    metrics = {name: torch.tensor(1.0) for name in ("loss", "seen", "steps", "personal_correct")}
    work = Work(client, {}, memory)
    request = Request(task, 0, 0.1, shared_of(), [work])
    return filters.outgoing(
        task, request, work, Result(reply, {"own": {}}, metrics), Draws(Key(7).client(client), task, 0)
    )


def test_local_noise_leaves_with_the_answer() -> None:
    filters = Filters(budget("local", clip=2.0, noise=0.8))
    found = left(filters, reply_of(0, 1e-6))
    changed = changes(shared_of(), found.reply)
    values = torch.cat([t.reshape(-1) for tree in changed.values() for t in tree.values()])
    assert float(values.std()) == pytest.approx(1.6, rel=5 / (2 * values.numel()) ** 0.5)
    other = left(filters, reply_of(0, 1e-6), client=1)
    assert not torch.equal(found.reply["model"]["w"], other.reply["model"]["w"])
    same = left(filters, reply_of(0, 1e-6))
    assert torch.equal(found.reply["model"]["w"], same.reply["model"]["w"])


@pytest.mark.parametrize("name", ["central", "local", "sample"])
def test_losses_stay_with_the_client(name: str) -> None:
    found = left(Filters(budget(name)), reply_of(0))
    assert found.metrics.keys() == {"seen", "steps", "personal_correct"}
    assert left(NO_FILTERS, reply_of(0)).metrics.keys() >= {"loss"}


@pytest.mark.parametrize("name", ["central", "local"])
def test_whole_numbers_never_leave_as_they_are(name: str) -> None:
    reply = {**reply_of(0), "counts": {"n": torch.tensor([3, 4])}}
    with pytest.raises(RunError, match=r"counts/n holds whole numbers"):
        left(Filters(budget(name)), reply)
    with pytest.raises(RunError, match=r"counts/n holds whole numbers"):
        central(replies_of(reply), budget("central"))


def test_other_tasks_pass_and_memory_of_filters_survives_them() -> None:
    filters = Filters(budget("local"), Compression(0.1), frozenset({"train"}))
    memory: Trees = {"filter.kept.model": {"w": torch.ones(60, 50)}, "own": {}}
    found = left(filters, reply_of(0), task="evaluate", memory=memory)
    assert torch.equal(found.reply["model"]["w"], reply_of(0)["model"]["w"])
    assert torch.equal(found.memory["filter.kept.model"]["w"], torch.ones(60, 50))
    assert "own" in found.memory
    assert "loss" in found.metrics
    assert filters.incoming("evaluate", shared_of(), found.reply) is found.reply


def test_compression_after_clipping_is_clipped_again_by_the_server() -> None:
    own = replace(budget("central", clip=1.0, noise=1e-9))
    filters = Filters(own, Compression(0.5, 8))
    memory: Trees = {"filter.kept.model": {name: 100 * torch.ones_like(t) for name, t in shared_of()["model"].items()}}
    sent = left(filters, reply_of(0), memory=memory)
    arrived = filters.incoming("train", shared_of(), sent.reply)
    assert norm(changes(shared_of(), arrived)) > 100  # what was held back came with it
    seen = central(replies_of(arrived), own).results[0].reply
    assert norm(changes(shared_of(), seen)) <= 1 + 1e-3
