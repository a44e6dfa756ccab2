"""Which filters a configuration asks for, on which answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accord.config import load_config
from accord.core.persample import PerSample
from accord.core.plan import Plan
from accord.core.types import Facts
from accord.engine.filtering import budget_of, filters_of, privately
from accord.errors import ConfigError
from accord.filters import NO_FILTERS, Budget
from support.federation import TinyRun

PRIVATE = ("privacy.name=central", "privacy.clip=1", "privacy.noise=1")


def test_without_a_wish_there_are_none() -> None:
    algorithm = TinyRun("fedavg").algorithm
    assert filters_of(load_config(), None, algorithm) is NO_FILTERS
    found = filters_of(load_config(sets=["compress.keep=0.25"]), None, algorithm)
    assert found.compression is not None
    assert found.compression.keep == 0.25
    assert found.budget is None


def test_of_every_task_the_updates_are_filtered() -> None:
    """SCAFFOLD sends its model and its control variate; the losses that qFFL sends stay exact."""
    config = load_config(sets=["compress.bits=8"])
    scaffold = filters_of(config, None, TinyRun("scaffold").algorithm).tasks["train"]
    assert len(scaffold) == 2
    assert "model" in scaffold
    assert dict(filters_of(config, None, TinyRun("qffl").algorithm).tasks) == {"train": frozenset({"model"})}
    asking = filters_of(config, None, TinyRun("fedufo").algorithm).tasks
    assert set(asking) == {"train", "prior"}, "a task that measures sends no update"


def test_a_task_that_declares_nothing_is_filtered_where_it_trains() -> None:
    silent = {name: Silent() for name in ("train", "measure")}
    algorithm: Any = type("A", (), {"tasks": silent})()
    assert dict(filters_of(load_config(sets=["compress.bits=8"]), None, algorithm).tasks) == {"train": frozenset()}


class Silent:
    """A task that says nothing of what it sends."""


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ((*PRIVATE, "local.class_weights=balanced"), "counts the labels of all clients"),
        ((*PRIVATE, "clients.sampler=poisson", "clients.minimum=2"), r"clients\.minimum above 1 skips rounds"),
    ],
)
def test_what_privacy_does_not_cover_is_refused(sets: tuple[str, ...], said: str) -> None:
    run, facts = TinyRun("fedavg"), Facts((1,), 2, np.array([4, 4]), frozenset())
    with pytest.raises(ConfigError, match=said):
        budget_of(load_config(sets=list(sets)), facts, run.setup)
    open_house = load_config(sets=[*(one for one in sets if not one.startswith("privacy"))])
    assert budget_of(open_house, facts, run.setup) is None
    assert privately(run.setup, None) is run.setup


def test_the_accounting_is_of_the_members_their_plan_and_their_presence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(Budget, "of", lambda *given, **named: asked.append({"given": given, **named}))
    run = TinyRun("fedavg", plan=Plan(epochs=3, steps=2, batch_size=4))
    facts = Facts((1,), 2, np.array([40, 0, 30, 20]), frozenset({3}))
    away = ["pace.presence=chance", "pace.share=0.5"]
    for sets, steady in (((), True), ((), False), (away, True)):
        budget_of(load_config(sets=[*PRIVATE, "rounds=7", *sets]), facts, run.setup, steady=steady)
    first, *others = asked
    assert first["given"][0] == "central"
    assert first["given"][1].items() >= {"clip": 1.0, "noise": 1.0}.items()
    assert (first["sizes"], first["plan"], first["rounds"]) == ([40, 30], run.setup.plan, 7)
    assert first["sampler"] is run.setup.sampler
    assert [one["steady"] for one in asked] == [True, False, False], "who is away is not drawn"
    assert len(others) == 2


def test_where_samples_are_protected_batches_are_drawn_sample_by_sample() -> None:
    run = TinyRun("fedavg", plan=Plan(epochs=3, batch_size=4, last_batch="drop"))
    facts = Facts((1,), 2, np.array([40, 40]), frozenset())
    config = load_config(sets=["privacy.name=sample", "privacy.noise=1.5", "privacy.clip=0.25"])
    private = privately(run.setup, budget_of(config, facts, run.setup))
    assert private.private == PerSample(0.25, 1.5)
    assert private.plan == Plan(epochs=3, batch_size=4, last_batch="pad", poisson=True)
    client = load_config(sets=["privacy.name=local", "privacy.noise=1.5"])
    assert privately(run.setup, budget_of(client, facts, run.setup)) is run.setup
