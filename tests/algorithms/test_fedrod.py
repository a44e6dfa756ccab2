"""Fed-RoD: the balanced softmax by hand, both heads against a plain reference, the folded personal model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedrod import BalancedSoftmax, fedrod
from accord.core.model import Model
from accord.core.types import ClientData, Job
from accord.data.federated import Pool
from accord.errors import ConfigError
from accord.models import adapt
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.personal import COHORTS, Params, by_samples, near, same_in_processes, tiny
from support.reference import forward, gradient, samples

HEAD = ("head.bias", "head.weight")


def hidden(p: Params, x: Tensor) -> Tensor:
    (weight,) = (t for n, t in p.items() if t.dim() == 2 and n not in HEAD)
    (bias,) = (t for n, t in p.items() if t.dim() == 1 and n not in HEAD)
    return torch.relu(x.flatten(1) @ weight.T + bias)


def reference_client(run: TinyRun, k: int, w: Params, own: Params, round: int, eps: float) -> tuple[Params, Params]:
    x, y = samples(run, k)
    counts = [max(float((y == c).sum()), eps) for c in range(3)]
    prior = torch.tensor([math.log(n) for n in counts])
    w, own = dict(w), dict(own)
    for rows in run.batches(k, "train", round):
        xb, yb = x[rows], y[rows]
        z, generic = hidden(w, xb), forward(w, xb)
        grads = gradient(lambda p, xb=xb, yb=yb: F.cross_entropy(forward(p, xb) + prior, yb), w)
        mine = gradient(
            lambda h, z=z, g=generic, yb=yb: F.cross_entropy(g + z @ h["head.weight"].T + h["head.bias"], yb), own
        )
        w = {n: t - 0.1 * grads[n] for n, t in w.items()}
        own = {n: t - 0.1 * mine[n] for n, t in own.items()}
    return w, own


def test_three_rounds_with_partial_participation(float64: None) -> None:
    run = tiny(fedrod, {"eps": 1e-4}, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    own: dict[int, Params] = {}
    for round, cohort in enumerate(COHORTS):
        models = []
        for k in cohort:
            start = own.get(k, {n: w[n] for n in HEAD})
            model, own[k] = reference_client(run, k, w, start, round, 1e-4)
            models.append(model)
        w = by_samples(models, cohort)
    run.rounds(3)
    assert near(run.state["model"], w)
    for k, head in own.items():
        assert near(run.store.get(k)["own_head"], head)


def test_the_prior_by_hand(float64: None) -> None:
    x, y = torch.zeros(4, 2), torch.tensor([0, 0, 0, 2])
    job = Job({}, {}, {}, {"lr": torch.tensor(0.1)}, ClientData(x, y, x[:0], y[:0], 3))
    prior = BalancedSoftmax(1e-8).begin(tiny_model(), job)["prior"]
    assert torch.allclose(prior, torch.tensor([math.log(3), math.log(1e-8), 0.0]))
    # Equal logits: the probabilities are the class shares 3/4, ~0, 1/4.
    assert float(F.cross_entropy(prior[None], torch.tensor([2]))) == pytest.approx(math.log(4), abs=1e-7)


def test_classes_a_client_does_not_hold_do_not_break_training() -> None:
    data, model = tiny_data(), tiny_model()
    few = replace(data, train_pool=Pool(data.train_pool.x, data.train_pool.y.clamp(max=1)))
    run = TinyRun(fedrod(tiny_setup(few, model)), data=few, model=model).rounds(3)
    assert all(torch.isfinite(t).all() for t in run.state["model"].values())
    # Nobody holds class 2: under the prior its logit is as good as absent, so G's row for it stays put.
    first = model.init()[0]["head.bias"][2]
    assert float(run.state["model"]["head.bias"][2]) == pytest.approx(float(first), abs=1e-6)


def test_personal_logits_are_the_sum_of_both_heads(float64: None) -> None:
    run = tiny(fedrod, with_test=True).rounds(1)
    for k, result in zip(run.replies.ids, run.replies.results, strict=True):
        x, y = samples(run, k)
        own, model = run.store.get(k)["own_head"], result.reply["model"]
        logits = forward(model, x) + hidden(model, x) @ own["head.weight"].T + own["head.bias"]
        assert int(result.metrics["personal_correct"]) == int((logits.argmax(1) == y).sum())
        carry = {"train": {"model": model, "own_head": own}, "buffers": {}}
        job = Job({}, {}, {}, {}, ClientData(x, y, x, y, 3))
        params, buffers = run.algorithm.local.parts[1].judged(run.model, job, carry)
        assert torch.allclose(run.model.reference(params, buffers, x).logits, logits)
        assert "own_head" not in result.reply


def test_unbalanced_the_shared_half_is_fedavg_bit_for_bit() -> None:
    run = tiny(fedrod, {"balanced": False}, sampler=Given(*COHORTS)).rounds(3)
    assert equal_trees(run.state, tiny(fedavg, sampler=Given(*COHORTS)).rounds(3).state)


def test_processes_give_the_same_bits() -> None:
    assert same_in_processes(fedrod)


@pytest.mark.parametrize("eps", [0.0, -1.0, float("nan"), "x"])
def test_bad_eps_is_refused(eps: Any) -> None:
    with pytest.raises(ConfigError, match="eps"):
        fedrod(tiny_setup(tiny_data(), tiny_model()), eps=eps)


def test_a_head_of_several_layers_is_refused() -> None:
    layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Sequential(nn.ReLU(), nn.Linear(5, 3)))
    model = Model(adapt(layers, head="2", example=torch.zeros(2, 1, 8, 8)))
    with pytest.raises(ConfigError, match="Sequential"):
        fedrod(tiny_setup(tiny_data(), model))


def test_a_frozen_head_is_refused() -> None:
    network = tiny_model().network
    network.head.requires_grad_(False)
    with pytest.raises(ConfigError, match="algorithm fedrod trains a head for every client"):
        fedrod(tiny_setup(tiny_data(), Model(network)))
