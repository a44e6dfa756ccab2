"""FedRep: the head's epochs, then the body's; nothing moves out of turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from accord.algorithms.fedrep import fedrep, head_first
from accord.core.optim import SGD, Adam
from accord.core.plan import Plan
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, labels_loss, make, mean, processes_agree
from support.federation import SIZES, Given, tiny_data, tiny_model, tiny_setup
from support.reference import Params, forward, samples

HEAD = ("head.bias", "head.weight")
BODY = ("neck.0.bias", "neck.0.weight")


@pytest.mark.parametrize(
    "plan", [Plan(epochs=2, batch_size=4), Plan(steps=3, batch_size=4), Plan(epochs=2, steps=3, batch_size=4)]
)
def test_three_rounds(plan: Plan, float64: None) -> None:
    """Momentum and weight decay in both phases, each with a velocity of its own that starts at 0."""
    run = make(fedrep, {"head_epochs": 3}, sampler=Given(*COHORTS), optimizer=SGD(0.9, 0.05), plan=plan, with_test=True)
    w = dict(run.state["model"])
    heads: dict[int, Params] = {}
    models: dict[int, Params] = {}
    for round, cohort in enumerate(COHORTS):
        for k in cohort:
            batches = run.batches(k, round=round)
            per_epoch = -(-SIZES[k] // 4)
            on_head = 9 if plan.steps else 3 * per_epoch
            assert len(batches) == (12 if plan.steps else 5 * per_epoch)
            loss, start = labels_loss(run, k), {**w, **heads.get(k, {})}
            settings = {"momentum": 0.9, "decay": 0.05}
            fitted = descend(start, batches[:on_head], loss, moves=lambda _: HEAD, **settings)
            models[k] = descend(fitted, batches[on_head:], loss, moves=lambda _: BODY, **settings)
            heads[k] = {n: models[k][n] for n in HEAD}
        average = mean([models[k] for k in cohort], [SIZES[k] for k in cohort])
        w = {n: w[n] if n in HEAD else p for n, p in average.items()}
    run.rounds(3)
    assert close(run.state["model"], w)
    for k in range(4):
        assert close((run.store.get(k) or {})["personal"], heads[k])
    assert run.replies is not None
    for k, result in zip(run.replies.ids, run.replies.results, strict=True):
        assert set(result.reply["model"]) == set(BODY)
        x, y = samples(run, k)
        assert result.metrics["personal_correct"] == (forward(models[k], x).argmax(1) == y).sum()
    assert run.algorithm.predictor(run.state) is None


def test_the_turns() -> None:
    assert head_first(6, 2, 1).tolist() == [0, 0, 0, 0, 1, 1]
    assert head_first(0, 10, 1).tolist() == []
    assert head_first(4, 1, 3).tolist() == [0, 1, 1, 1]


def test_adam_starts_afresh_for_the_body(float64: None) -> None:
    """One step on the head, one on the body: either is Adam's first, lr * sign(g)."""
    run = make(
        fedrep, {"head_epochs": 1}, sampler=Given([1]), optimizer=Adam(eps=1e-30), plan=Plan(steps=1, batch_size=0)
    )
    before = dict(run.state["model"])
    run.rounds(1)
    after = {**run.state["model"], **(run.store.get(1) or {})["personal"]}
    for n, p in before.items():
        moved = (after[n] - p).abs()
        alive = moved > 0  # weights of dead units have no gradient
        assert alive.any()
        assert torch.allclose(moved[alive], torch.full_like(moved[alive], 0.1), rtol=1e-6)


def test_clipping_sees_only_what_moves(float64: None) -> None:
    data, model = tiny_data(dtype=torch.float64), tiny_model()
    setup = tiny_setup(data, model, sampler=Given([1]), plan=Plan(steps=1, batch_size=0))
    run = make(lambda _: fedrep(replace(setup, clip=1e-3), head_epochs=1), data=data, model=model)
    before = dict(run.state["model"])
    run.rounds(1)
    after = {**run.state["model"], **(run.store.get(1) or {})["personal"]}
    for names in (HEAD, BODY):
        moved = sum(float(((after[n] - before[n]) ** 2).sum()) for n in names) ** 0.5
        assert moved == pytest.approx(0.1 * 1e-3)


def test_processes_agree() -> None:
    assert processes_agree(fedrep, {"head_epochs": 2})


def test_bad_settings() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    for epochs in (0, -1, 1.5):
        with pytest.raises(ConfigError, match="head_epochs"):
            fedrep(setup, head_epochs=epochs)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"fedrep.*only a head"):
        fedrep(tiny_setup(tiny_data(), tiny_model("linear")))
