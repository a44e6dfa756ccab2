"""FedBABU: a head that never moves, and fine-tuning that touches nothing but the score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from accord.algorithms.fedbabu import FineTuned, fedbabu
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.core.types import ClientData, Job
from accord.errors import ConfigError
from support.federation import Given, TinyRun, equal_trees, suited, tiny_data, tiny_model, tiny_setup
from support.personal import COHORTS, FILLED, Params, by_samples, near, norm_model, same_in_processes, tiny
from support.reference import forward, gradient, local_sgd, samples


def without_head(grads: Params) -> Params:
    return {n: torch.zeros_like(g) if n.startswith("head") else g for n, g in grads.items()}


def fine_tuned(run: TinyRun, client: int, start: Params, epochs: int, head_only: bool) -> Params:
    """SGD with rate 0.1 over full batches of four in the samples' own order."""
    x, y = samples(run, client)
    params = dict(start)
    for _ in range(epochs):
        for left in range(0, len(y), 4):
            rows = [place % len(y) for place in range(left, left + 4)]  # the last one starts over
            xb, yb = x[rows], y[rows]
            grads = gradient(lambda p, xb=xb, yb=yb: F.cross_entropy(forward(p, xb), yb), params)
            params = {n: t if head_only and not n.startswith("head") else t - 0.1 * grads[n] for n, t in params.items()}
    return params


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_three_rounds_with_partial_participation(momentum: float, float64: None) -> None:
    run = tiny(fedbabu, sampler=Given(*COHORTS), optimizer=SGD(momentum))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = [local_sgd(run, k, w, round, momentum=momentum, correct=without_head)[0] for k in cohort]
        w = by_samples(models, cohort)
    run.rounds(3)
    assert near(run.state["model"], w)


def test_the_head_never_moves_not_even_by_rounding() -> None:
    run = tiny(fedbabu, optimizer=SGD(0.9, weight_decay=0.1), with_test=True)
    first = {n: t.clone() for n, t in run.state["model"].items()}
    run.rounds(3)
    for name, value in run.state["model"].items():
        assert torch.equal(value, first[name]) == name.startswith("head")
    assert all(not n.startswith("head") for r in run.replies.results for n in r.reply["model"])


@pytest.mark.parametrize(("tune", "epochs"), [("head", 2), ("all", 3), ("all", 0)])
def test_the_judged_model(tune: str, epochs: int, float64: None) -> None:
    run = tiny(fedbabu, {"tune": tune, "tune_epochs": epochs}, with_test=True).rounds(1)
    start = dict(run.state["model"])
    run.rounds(1)
    for k, result in zip(run.replies.ids, run.replies.results, strict=True):
        x, y = samples(run, k)
        model = fine_tuned(run, k, start, epochs, tune == "head")
        assert int(result.metrics["personal_correct"]) == int((forward(model, x).argmax(1) == y).sum())


@pytest.mark.parametrize("tune", ["head", "all"])
def test_the_fine_tuned_weights(tune: str, float64: None) -> None:
    run = tiny(fedbabu, {"tune": tune, "tune_epochs": 2})
    x, y = samples(run, 2)
    start = dict(run.state["model"])
    job = Job({"model": start, "buffers": {}}, {}, {}, {"lr": torch.tensor(0.1)}, ClientData(x, y, x, y, 3))
    judged = run.algorithm.local.parts[-1].judged(run.model, job, {})
    assert near(judged[0], fine_tuned(run, 2, start, 2, tune == "head"))


def test_fine_tuning_changes_nothing_else() -> None:
    for model in (tiny_model(), norm_model()):
        watched = tiny(fedbabu, with_test=True, model=model, plan=FILLED).rounds(2)
        blind = tiny(fedbabu, model=model, plan=FILLED).rounds(2)
        assert equal_trees(watched.state, blind.state)
        assert not watched.replies.missing


def test_all_data_in_one_batch() -> None:
    run = tiny(fedbabu, {"tune_epochs": 1}, plan=Plan(batch_size=0), with_test=True).rounds(1)
    assert (run.replies.metric("personal_examples") > 0).all()


def test_processes_give_the_same_bits() -> None:
    assert same_in_processes(fedbabu, with_test=True)


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"tune_epochs": -1}, "tune_epochs"), ({"tune_epochs": 1.5}, "tune_epochs"), ({"tune": "body"}, "tune")],
)
def test_bad_settings_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        fedbabu(tiny_setup(tiny_data(), tiny_model()), **settings)


def test_a_network_without_a_body_is_refused() -> None:
    with pytest.raises(ConfigError, match="only a head"):
        fedbabu(tiny_setup(tiny_data(), tiny_model("linear")))


def test_a_frozen_head_can_be_kept_but_not_tuned() -> None:
    network = tiny_model().module(*tiny_model().init())
    for name, value in network.named_parameters():
        value.requires_grad_(not name.startswith("head"))
    setup = tiny_setup(tiny_data(), suited(network))
    assert "train" in fedbabu(setup, tune="all").tasks
    with pytest.raises(ConfigError, match="algorithm fedbabu trains a head for every client"):
        fedbabu(setup, tune="head")


@pytest.mark.parametrize(("samples_held", "size"), [(9, 4), (3, 4), (5, 0)])
def test_fine_tuning_has_momentum_decay_and_clipping(samples_held: int, size: int, float64: None) -> None:
    """Whoever holds less than a batch has all of it in one, no sample twice."""
    run = tiny(fedbabu)
    x, y = (part[:samples_held] for part in samples(run, 3))
    start = dict(run.state["model"])
    job = Job({"model": start, "buffers": {}}, {}, {}, {"lr": torch.tensor(0.1)}, ClientData(x, y, x, y, 3))
    found, _ = FineTuned(2, "all", SGD(0.5, 0.01), size, 0.3).judged(run.model, job, {})
    params, velocity = dict(start), {n: torch.zeros_like(t) for n, t in start.items()}
    batch = min(size or samples_held, samples_held)
    clipped = 0
    for _ in range(2):
        for left in range(0, samples_held, batch):
            rows = [place % samples_held for place in range(left, left + batch)]
            grads = gradient(lambda p, rows=rows: F.cross_entropy(forward(p, x[rows]), y[rows]), params)
            norm = float(sum((g**2).sum() for g in grads.values())) ** 0.5
            clipped += norm > 0.3
            grads = {n: g * min(1.0, 0.3 / norm) + 0.01 * params[n] for n, g in grads.items()}
            velocity = {n: 0.5 * velocity[n] + g for n, g in grads.items()}
            params = {n: t - 0.1 * velocity[n] for n, t in params.items()}
    assert clipped
    assert near(found, params, 1e-6)  # a little is added to the norm that is divided by


def test_it_is_tuned_as_it_is_trained() -> None:
    setup = tiny_setup(tiny_data(), tiny_model(), optimizer=SGD(0.5, 0.01), plan=Plan(batch_size=7))
    method = fedbabu(replace(setup, clip=0.3), tune="head", tune_epochs=2)
    assert method.local.parts[-1] == FineTuned(2, "head", SGD(0.5, 0.01), 7, 0.3)
