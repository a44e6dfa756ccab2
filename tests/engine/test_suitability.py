"""Whether a method's answers can pass a filter, question by question, on a tiny federation."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.config import load_config
from accord.core.model import Model
from accord.core.optim import Schedule
from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.core.task import LocalTraining, Part
from accord.core.types import Job, Result
from accord.engine import suitability
from accord.engine.suitability import (
    UnsuitableError,
    _alike,
    _check_by_sample,
    _check_covered,
    _check_parts,
    _Door,
    _one_step,
    _sampler,
    _SealBroken,
    _Sealed,
    _shaken,
    _Trial,
    check_filters,
)
from accord.filters import NO_FILTERS, Compression, Filters
from accord.filters.protections import PROTECTIONS
from accord.models import adapt
from accord.sampling import Cyclic, Everyone, Uniform
from support.federation import Given, TinyRun, tiny_model

PLAN = Plan(epochs=2, batch_size=4, poisson=True)
LOCAL: Any = SimpleNamespace(epochs=2, steps=0, batch_size=4)


def tried(name: Any, settings: dict[str, Any] | None = None, **options: Any) -> _Trial:
    run = TinyRun(name, settings, **options)
    return _Trial(run.federation.facts, run.algorithm, run.federation.site())


def test_without_filters_nothing_is_asked_and_compression_only_wants_answers_that_travel() -> None:
    nobody: Any = None
    check_filters(nobody, nobody, nobody, nobody, NO_FILTERS)
    small = Filters(compression=Compression(0.5, 32))
    config: Any = SimpleNamespace(algorithm=SimpleNamespace(name="mine"))
    check_filters(config, nobody, SimpleNamespace(pools_data=False), nobody, small)  # type: ignore[arg-type]
    with pytest.raises(UnsuitableError, match="algorithm mine gathers all data in one place before training"):
        check_filters(config, nobody, SimpleNamespace(pools_data=True), nobody, small)  # type: ignore[arg-type]


def test_a_trial_is_one_step_of_one_client_in_which_all_are_asked_for() -> None:
    trial = tried("fedavg", sampler=Cyclic(3))
    assert (trial.asked, trial.refusal, trial.streams, trial.as_many_steps) == (["train"], "", False, False)
    assert trial.clients == Cyclic(3)(trial.state, trial.world)
    assert trial.replies is not None
    assert len(trial.replies) == 1
    assert trial.reply.keys() == {"model", "buffers"}
    assert float(trial.replies.results[0].metrics["steps"]) == 1.0
    assert (trial.lr, trial.world.round) == (0.1, 0)
    assert tried("fedavg", plan=Plan(steps=3, batch_size=4)).as_many_steps
    run = TinyRun("fedavg")
    slower: Any = replace(run.algorithm, schedule=Schedule(0.5, "exponential", 0.5))  # type: ignore[type-var]
    assert _Trial(run.federation.facts, slower, run.federation.site()).lr == 0.5, "that of the first round"


@pytest.mark.parametrize(
    ("privacy", "kind", "sampler", "fits"),
    [
        ("central", "uniform", Uniform(2), True),
        ("central", "uniform", Given([0, 3]), False),  # in its own way
        ("local", "in turn", Given([0, 3]), False),
        ("local", "uniform", Given([0, 3]), True),  # nobody counts on it
        ("local", "in turn", Uniform(2), True),
    ],
)
def test_the_accounting_counts_on_who_is_drawn(privacy: str, kind: str, sampler: Any, fits: bool) -> None:
    run = TinyRun("fedavg", sampler=sampler)
    protection = PROTECTIONS[privacy](noise=1.0)
    budget: Any = SimpleNamespace(name=privacy, protection=protection, draw=SimpleNamespace(kind=kind))
    config, site = load_config(sets=["clients.count=2"]), run.federation.site()
    if fits:
        check_filters(config, run.federation.facts, run.algorithm, site, Filters(budget))
    else:
        with pytest.raises(UnsuitableError, match=f"fedavg does not fit privacy.name = '{privacy}': it chooses its cl"):
            check_filters(config, run.federation.facts, run.algorithm, site, Filters(budget))


@pytest.mark.parametrize(("name", "only"), [("fedavg", True), ("fedprox", True), ("median", False), ("fednova", False)])
def test_whether_a_server_reads_only_means(name: str, only: bool) -> None:
    assert tried(name).reads_only_means() is only


def test_where_all_take_as_many_steps_weights_by_steps_are_a_mean() -> None:
    assert not tried("fedcm").reads_only_means()
    assert tried("fedcm", plan=Plan(steps=2, batch_size=4)).reads_only_means()


def test_what_reads_data_outside_of_its_steps_is_found() -> None:
    for name, words in (("fedavg", ""), ("moon", "it reads its client's data (job.data.x) outside of its steps, wh")):
        trial = tried(name)
        task: Any = TinyRun(name).algorithm.tasks["train"]
        assert trial.beyond_steps(task).startswith(words)
        assert bool(trial.beyond_steps(task)) is bool(words)
    trial, plain = tried("fedavg"), TinyRun("fedavg").algorithm.tasks["train"]
    for hook, answer in (("memory", {}), ("begin", {}), ("finish", ({}, {}))):

        def looks(self: Part, *given: Any, answer: Any = answer) -> Any:
            job = next(one for one in given if isinstance(one, Job))
            _ = job.data.y
            return answer

        part = type("Looking", (Part,), {hook: looks})()
        task = replace(plain, parts=(*plain.parts, part))  # type: ignore[type-var, attr-defined]
        assert "(job.data.y)" in trial.beyond_steps(task), hook
    sealed = _Sealed(7)
    assert (sealed.num_classes, sealed.has_test) == (7, False)
    with pytest.raises(_SealBroken, match=r"^y$"):
        sealed.y  # noqa: B018 - asking is enough


def fails(*_: Any) -> Any:
    raise ValueError("it asks\nfor a value")


@pytest.mark.parametrize("privacy", ["central", "local", "sample"])
def test_each_protection_asks_its_own_questions(privacy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise on means needs a server that reads means, noise on answers what can be noised, on samples their steps."""
    asked: list[str] = []
    trial: Any = SimpleNamespace(refusal="", streams=False, clients=[0, 1], state={}, world=None, reply={"model": {}})
    trial.reads_only_means = lambda: True
    reasons: list[str] = []
    for name in ("_check_parts", "_check_covered", "_check_by_sample"):
        monkeypatch.setattr(suitability, name, lambda *given, name=name: asked.append(name))
    monkeypatch.setattr(suitability, "_Trial", lambda *given: trial)
    monkeypatch.setattr(suitability, "reasons_for_each", lambda algorithm: reasons)
    monkeypatch.setattr(suitability, "_sampler", lambda *given: lambda state, world: [0, 1])
    protection = PROTECTIONS[privacy](noise=1.0)
    budget: Any = SimpleNamespace(name=privacy, protection=protection, draw=SimpleNamespace(kind="uniform"))
    config: Any = SimpleNamespace(algorithm=SimpleNamespace(name="mine"), local=None)
    method: Any = SimpleNamespace(pools_data=False, tasks={"train": None, "evaluate": None})

    def check(words: str = "") -> None:
        nothing: Any = None
        asked.clear()
        if not words:
            check_filters(config, nothing, method, nothing, Filters(budget))
            return
        with pytest.raises(UnsuitableError, match=f"mine does not fit privacy.name = '{privacy}': .*{words}"):
            check_filters(config, nothing, method, nothing, Filters(budget))

    central = privacy == "central"
    check()
    assert asked == (["_check_parts", "_check_by_sample"] if privacy == "sample" else ["_check_covered"])
    reasons.append("sorts the answers")
    check("the server sorts the answers" if central else "")
    reasons.clear()
    trial.streams = True
    check("takes answers as they come" if central else "")
    trial.streams, trial.reads_only_means = False, lambda: False
    check("reads more of the answers than their mean" if central else "")
    trial.reads_only_means = lambda: True
    trial.refusal = "it asks twice"
    check("it asks twice")
    trial.refusal = ""
    method.tasks["prior"] = None
    check(r"asks its clients for more than their training \(task prior\)")


def test_each_reason_against_single_samples_counts() -> None:
    task: Any = TinyRun("fedavg").algorithm.tasks["train"]
    site: Any = "site"

    def check(beyond: str, no_sum: str) -> None:
        seen: Any = SimpleNamespace(beyond_steps=lambda task: beyond, not_a_sum=lambda task, site: no_sum)
        _check_by_sample("mine", "privacy.name = 'sample'", task, seen, site)

    check("", "")
    with pytest.raises(UnsuitableError, match=r"mine does not fit privacy\.name = 'sample': it reads data"):
        check("it reads data", "")
    with pytest.raises(UnsuitableError, match="it compares samples"):
        check("", "it compares samples")


def test_what_is_no_sum_over_samples_is_found() -> None:
    run = TinyRun("fedavg", private=PerSample(1.0, 0.5), plan=PLAN)
    site, trial = run.federation.site(), tried("fedavg")
    task: Any = run.algorithm.tasks["train"]
    before = torch.random.get_rng_state()
    assert trial.not_a_sum(task, site) == ""
    decorrelated: Any = TinyRun("feddecorr").algorithm.tasks["train"]
    assert trial.not_a_sum(decorrelated, site) == "its loss compares the samples of a batch with one another"
    broken: Any = replace(task, parts=(type("Broken", (Part,), {"loss": fails})(),))
    assert trial.not_a_sum(broken, site) == "its gradient cannot be taken sample by sample (it asks)"
    assert torch.equal(torch.random.get_rng_state(), before)


def asking(*tasks: str, before: str = "") -> Any:
    """A method that asks for these tasks in a round, and for another before the first."""
    real: Any = TinyRun("fedavg").algorithm

    def start(state: Any, world: Any, exchange: Any) -> Any:
        if before:
            exchange(before, [0], {})
        return state

    def round(state: Any, world: Any, exchange: Any) -> Any:
        replies = [exchange(task, [0, 1], real.message(state)) for task in tasks]
        return state, replies[0]

    return SimpleNamespace(
        tasks={"train": real.tasks["train"], "more": real.tasks["train"]},
        **{"schedule": real.schedule, "init": real.init, "start": start, "round": round},
    )


@pytest.mark.parametrize(
    ("tasks", "before", "why"),
    [
        (["train"], "", ""),
        (["train", "train"], "", "it asks its clients 2 times in a round, and the accounting covers one"),
        (["more"], "", "it asks its clients 1 times in a round, and the accounting covers one"),
        (["train"], "more", "it asks its clients for more before the first round, which the accounting"),
    ],
    ids=["once", "twice", "another", "before"],
)
def test_how_often_clients_are_asked(tasks: list[str], before: str, why: str) -> None:
    run = TinyRun("fedavg")
    trial = _Trial(run.federation.facts, asking(*tasks, before=before), run.federation.site())
    assert trial.refusal.startswith(why)
    assert bool(trial.refusal) is bool(why)


def test_of_a_stream_each_client_counts_once() -> None:
    """Two messages, one for each client: nobody is asked twice."""
    run = TinyRun("fedavg")
    method: Any = asking("train")

    def round(state: Any, world: Any, exchange: Any) -> Any:
        for client in (2, 1):
            exchange.begin("train", [client], run.algorithm.message(state))
        return state, exchange.arrivals(2)

    method.round = round
    trial = _Trial(run.federation.facts, method, run.federation.site())
    assert (trial.streams, trial.refusal, trial.asked, trial.clients) == (True, "", ["train", "train"], [1, 2])


def test_dropout_is_no_comparison_of_samples() -> None:
    """Whatever is drawn differs between a batch and its samples alone."""
    layers = [torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)]
    model = Model(adapt(torch.nn.Sequential(*layers), head="3"))
    run = TinyRun("fedavg", model=model)
    trial = _Trial(run.federation.facts, run.algorithm, run.federation.site())
    task: Any = run.algorithm.tasks["train"]
    assert trial.not_a_sum(task, run.federation.site()) == ""


def test_a_door_knows_whether_it_is_a_stream() -> None:
    door = _Door(lambda *given: ("asked", given))  # type: ignore[arg-type]
    assert door("train", [1], {}, None) == ("asked", ("train", [1], {}, None))
    assert not door.begun
    door.begin("train", [1], {})
    assert door.begun
    assert tried("fedbuff").streams


def test_whom_the_accounting_counts_on() -> None:
    facts: Any = SimpleNamespace(members=[0, 1, 2, 3, 5, 6])
    config = load_config(sets=["clients.sampler=cyclic", "clients.fraction=0.5"])
    assert _sampler(config, facts, SimpleNamespace()) == Cyclic(3)  # type: ignore[arg-type]
    assert _sampler(config, facts, SimpleNamespace(sampler=Cyclic(2))) == Cyclic(2)  # type: ignore[arg-type]
    assert _sampler(config, facts, SimpleNamespace(sampler=Uniform(2))) == Cyclic(3)  # type: ignore[arg-type]
    assert _sampler(config, facts, SimpleNamespace(sampler=Everyone())) == Cyclic(3)  # type: ignore[arg-type]


def test_what_cannot_be_noised() -> None:
    _check_covered("a", "b", {"model": {"w": torch.ones(1)}, "buffers": {}})
    with pytest.raises(UnsuitableError, match=r"sends whole numbers \(model/n\)"):
        _check_covered("a", "b", {"model": {"w": torch.ones(1), "n": torch.tensor(3)}})
    with pytest.raises(UnsuitableError, match=r"running statistics \(buffers/mean\)"):
        _check_covered("a", "b", {"model": {"w": torch.ones(1)}, "buffers": {"mean": torch.ones(1)}})


def test_what_clips_every_sample_by_itself() -> None:
    method: Any = TinyRun("fedavg", private=PerSample(1.0, 0.5), plan=PLAN).algorithm
    task = method.tasks["train"]

    def check(train: Any, local: Any = LOCAL) -> None:
        _check_parts("mine", "it", SimpleNamespace(tasks={"train": train}), local)  # type: ignore[arg-type]

    check(task)
    for changed, words in (
        (object(), "train in a way of its own"),
        (replace(task, private=None), "train in a way of its own"),
        (replace(task, plan=replace(PLAN, poisson=False)), "take other steps than"),
        (TinyRun("fedrep", private=PerSample(1.0, 0.5), plan=PLAN).algorithm.tasks["train"], "take other steps than"),
        (replace(task, model=tiny_model("resnet18", norm="batch")), "batch norm or other running statistics"),
    ):
        with pytest.raises(UnsuitableError, match=f"algorithm mine does not fit it: .*{words}"):
            check(changed)
    for name, value in (("epochs", 3), ("steps", 1), ("batch_size", 5)):
        with pytest.raises(UnsuitableError, match="take other steps than"):
            check(task, SimpleNamespace(**{**vars(LOCAL), name: value}))

    for hook in ("step", "objective", "move"):
        other = type("Other", (LocalTraining,), {hook: lambda self, *given: None})
        with pytest.raises(UnsuitableError, match="train in a way of its own"):
            check(other(task.model, task.parts, plan=PLAN, private=task.private))
    layers = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.InstanceNorm1d(2, track_running_stats=True))
    kept = Model(adapt(torch.nn.Sequential(*layers, torch.nn.Linear(2, 2)), head="2"))
    assert not kept.couples_batch
    with pytest.raises(UnsuitableError, match="batch norm or other running statistics"):
        check(replace(task, model=kept))
    batched = torch.nn.Sequential(torch.nn.BatchNorm1d(2, track_running_stats=False), torch.nn.Linear(2, 2))
    with pytest.raises(UnsuitableError, match="batch norm or other running statistics"):  # that remembers none
        check(replace(task, model=Model(adapt(batched, head="1"))))
    for hook in ("noise", "batch", "before", "after", "close"):
        part = type("Meddling", (Part,), {hook: lambda self, *given: None})()
        with pytest.raises(UnsuitableError, match=rf"its part Meddling works on whole batches \({hook}\)"):
            check(replace(task, parts=(*task.parts, part)))
    comparing = type("Comparing", (Part,), {"couples": property(lambda self: True)})()
    with pytest.raises(UnsuitableError, match=r"its part Comparing works on whole batches \(it compares samples\)"):
        check(replace(task, parts=(*task.parts, comparing)))


def test_the_same_method_with_one_step() -> None:
    method: Any = TinyRun("fedavg", private=PerSample(1.0, 0.5), plan=PLAN).algorithm
    one: Any = _one_step(method)
    assert one.tasks["train"].plan == replace(PLAN, steps=1)
    assert one.tasks["train"].private is None
    other: Any = SimpleNamespace(local=None)
    assert _one_step(other) is other


def test_answers_that_are_made_up() -> None:
    """Each number moves by about a hundredth, whole ones stay, and the steps are those that are said."""
    result = Result({"model": {"w": torch.zeros(4000), "n": torch.tensor([3])}}, {}, {"steps": torch.ones(()) * 9})
    rng = np.random.default_rng(0)
    one, two = _shaken(result, rng, 2.0), _shaken(result, rng, 3.0)
    moved = one.reply["model"]["w"]
    assert (float(moved.mean()), float(moved.std())) == (pytest.approx(0, abs=1e-3), pytest.approx(0.01, rel=0.05))
    assert not torch.equal(moved, two.reply["model"]["w"])
    assert one.reply["model"]["n"].tolist() == [3]
    assert (float(one.metrics["steps"]), float(two.metrics["steps"])) == (2.0, 3.0)
    assert _shaken(result._replace(metrics={}), rng, 2.0).metrics == {}


def test_alike_is_up_to_rounding() -> None:
    def tree(*values: float) -> Any:
        return {"a": {"w": torch.tensor(values)}}

    assert _alike(tree(1.0, 100.0), tree(1.0005, 100.05))
    assert not _alike(tree(1.0), tree(1.002))
    assert _alike(tree(0.0), tree(5e-6))
    assert not _alike(tree(0.0), tree(2e-5))
    assert not _alike(tree(1.0, 1.0), tree(1.0, 1.1)), "every number counts"
