"""What every registered method promises, whoever wrote it. New methods join by being registered."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.client import Answer, Request, Work
from accord.core.plan import Plan
from accord.core.tensors import Trees, clone
from accord.engine.checkpoint import Checkpoints, Snapshot
from accord.executors.gpu.batched import Batched
from accord.executors.processes import Processes
from accord.executors.sequential import Sequential, answer
from accord.wire.codec import decode, encode
from support.cases import CASES, COHORTS, start
from support.federation import Everyone, Given, equal_trees, memories, same, tiny_data
from support.personal import norm_model

# Settings under which a method is FedAvg: its weights, and whether to the bit or up to rounding.
IDENTITIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "fedavg": ({"weight": "uniform"}, "uniform", "exact"),
    "fedprox": ({"mu": 0.0}, "examples", "exact"),
    "fedavgm": ({"server_lr": 1.0, "beta": 0.0}, "examples", "close"),  # w + (mean - w)
    "moon": ({"mu": 0.0}, "examples", "exact"),
    "fedcm": ({"alpha": 1.0}, "uniform", "exact"),
    "feddecorr": ({"beta": 0.0}, "examples", "exact"),
    "fedntd": ({"beta": 0.0}, "examples", "exact"),
    "mixup": ({"alpha": 0.0}, "examples", "exact"),
    "fedbr": ({"lam": 0.0, "mu": 0.0}, "uniform", "exact"),
    "fedmmd": ({"lam": 0.0}, "uniform", "exact"),
    "fedl2": ({"lam": 0.0}, "uniform", "exact"),
    "fedrane": ({"lra": False, "gne": False}, "examples", "exact"),
    "fedufo": ({"terms": "cls"}, "examples", "exact"),
    "feduad": ({"uad_weight": 0.0}, "examples", "exact"),
    "qffl": ({"q": 0.0}, "uniform", "exact"),
    "groupdro": ({"eta": 0.0}, "uniform", "exact"),
    "norm_clip": ({"limit": 1e9}, "examples", "exact"),
    "trimmed_mean": ({"trim": 0.0}, "uniform", "exact"),
    "fedreptile": ({"eps": 1.0}, "uniform", "exact"),
    "fml": ({"beta": 1.0}, "examples", "exact"),
    "compose": ({}, "examples", "exact"),
    "ditto": ({}, "examples", "exact"),  # its global half
    "fedrod": ({"balanced": False}, "examples", "exact"),
    "fedmix": ({"lam": 0.0}, "examples", "exact"),
    "naivemix": ({"lam": 0.0}, "examples", "exact"),
    "vhl": ({"alpha": 0.0, "contrast": 0.0, "virtual_contrast": 0.0}, "examples", "exact"),
    "fedmeta": ({"share": 0.0}, "examples", "exact"),
    "dann": ({"lam": 0.0}, "uniform", "exact"),
}
# What clients keep beside being FedAvg's; nobody else keeps anything then.
KEPT = {"fml": {"private", "private_buffers"}, "ditto": {"own", "own_buffers"}, "fedrod": {"own_head"}}


def close(a: Trees, b: Trees) -> bool:
    """Equal names, and values that differ by rounding at most."""
    return a.keys() == b.keys() and all(
        a[tree].keys() == b[tree].keys()
        and all(torch.allclose(a[tree][n].double(), t.double(), rtol=1e-9, atol=1e-10) for n, t in b[tree].items())
        for tree in b
    )


class ThroughBytes(Sequential):
    """Every job and every reply travels as bytes, as over a network."""

    def run(self, request: Request) -> list[Answer]:
        answers = []
        for work in request.works:
            memory = None if work.memory is None else decode(encode(work.memory))
            sent = Request(request.task, request.round, request.lr, decode(encode(request.shared)), ())
            alone = Work(work.client, decode(encode(work.private)), memory)
            (answer,) = super().run(Request(sent.task, sent.round, sent.lr, sent.shared, [alone]))
            assert answer.result is not None, answer.error
            back = answer.result._replace(
                reply=decode(encode(answer.result.reply)), memory=decode(encode(answer.result.memory))
            )
            answers.append(Answer(answer.client, back))
        return answers


class Watchful(Sequential):
    """Notices a task that writes into what it was given."""

    def run(self, request: Request) -> list[Answer]:
        given = [
            request.shared,
            *(w.private for w in request.works),
            *(w.memory or {} for w in request.works),
        ]
        before = [{name: clone(tree) for name, tree in trees.items()} for trees in given]
        data = self.site.data.train_pool.x.clone()
        answers = super().run(request)
        assert all(equal_trees(a, b) for a, b in zip(given, before, strict=True))
        assert torch.equal(self.site.data.train_pool.x, data)
        return answers


class Backwards(Given):
    """The cohorts in reverse order: who is named first must not matter."""

    def __call__(self, state: Any, world: Any) -> list[int]:
        return super().__call__(state, world)[::-1]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_executors_bytes_and_repetition_agree_to_the_bit(name: str, settings: dict[str, Any]) -> None:
    whole = start(name, settings, executor=Watchful).rounds(3)
    assert same(whole, start(name, settings).rounds(3)), "two runs differ"
    assert same(whole, start(name, settings, executor=ThroughBytes).rounds(3)), "bytes change the numbers"
    forked = start(name, settings, executor=partial(Processes, workers=2))
    try:
        assert same(whole, forked.rounds(3)), "processes differ from sequential"
    finally:
        forked.close()


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_lanes_agree_with_one_after_another(
    name: str, settings: dict[str, Any], float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outside(self: Batched, request: Request, works: Any) -> list[Answer]:
        plan = self.tasks[request.task].plan
        assert plan.epochs + plan.steps == 0, "a client ran outside the lanes"
        return [answer(self.site, self.tasks[request.task], request, work) for work in works]

    monkeypatch.setattr(Batched, "_one_by_one", outside)
    lanes, plain = start(name, settings, executor=Batched).rounds(3), start(name, settings).rounds(3)
    assert close(lanes.state, plain.state)
    mine, theirs = memories(lanes), memories(plain)
    assert mine.keys() == theirs.keys()
    assert all(close(mine[k], theirs[k]) for k in mine)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_interrupted_equals_whole(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    whole = start(name, settings).rounds(3)
    checkpoints = Checkpoints(tmp_path, "hash", keep=2)
    first = start(name, settings, folder=checkpoints.clients_folder).rounds(2)
    checkpoints.save(Snapshot(2, first.state, first.store.save()), first.store, {})

    second = start(name, settings, folder=checkpoints.clients_folder)
    snapshot, refused = checkpoints.newest(second.store)
    assert snapshot is not None
    assert not refused
    second.store.restore(snapshot.clients)
    second.state, second.round = snapshot.state, snapshot.round
    assert same(whole, second.rounds(1))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_order_of_the_cohort_does_not_matter(name: str, settings: dict[str, Any]) -> None:
    assert same(start(name, settings).rounds(3), start(name, settings, sampler=Backwards(*COHORTS.cohorts)).rounds(3))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_every_client_may_take_part_and_results_are_finite(name: str, settings: dict[str, Any]) -> None:
    run = start(name, settings, sampler=Everyone(), with_test=True).rounds(2)
    for tree in run.state.values():
        assert all(torch.isfinite(t).all() for t in tree.values() if t.is_floating_point())
    assert run.replies is not None
    if not run.algorithm.pools_data:  # the pooled client has no test data of its own
        assert (run.replies.metric("personal_examples") > 0).all()
    predictor = run.algorithm.predictor(run.state)
    if predictor is not None:
        logits = predictor(tiny_data().test_pool.x).logits
        assert logits.shape == (42, 3)
        assert torch.isfinite(logits).all()


@pytest.mark.parametrize("norm", [False, True], ids=["", "norm"])
@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_settings_are_fedavg(name: str, norm: bool) -> None:
    settings, weight, kind = IDENTITIES[name]
    plan = Plan(epochs=2, batch_size=4, last_batch="fill")  # what methods that compare samples ask for
    options: dict[str, Any] = {"model": norm_model()} if norm else {}  # running statistics are the mean's too
    run = start(name, settings, plan=plan, **options).rounds(3)
    base = start("fedavg", {"weight": weight}, plan=plan, **options).rounds(3)
    assert bool(base.state["buffers"]) == norm
    assert {tree for memory in memories(run).values() for tree in memory} == KEPT.get(name, set())
    for tree in ("model", "buffers"):
        for leaf, value in base.state[tree].items():
            if kind == "exact":
                assert torch.equal(run.state[tree][leaf], value)
            else:
                assert torch.allclose(run.state[tree][leaf], value, atol=1e-6)
