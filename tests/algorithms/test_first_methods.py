"""FedAvg, FedProx, SCAFFOLD, server optimizers, local, centralized: references written from the papers."""

from __future__ import annotations

import ast
import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from accord.algorithms.scaffold import ControlVariates
from accord.core.keys import Key
from accord.core.methods import ALGORITHMS
from accord.core.optim import SGD, Adam
from accord.core.plan import Plan
from accord.core.types import Replies, Result, World
from accord.engine.build import pooled
from accord.errors import ConfigError
from support.federation import (
    SIZES,
    Everyone,
    Given,
    TinyRun,
    as_module,
    equal_trees,
    tiny_data,
    tiny_model,
    tiny_setup,
)
from support.reference import Params, forward, local_sgd, samples

COHORTS = ([0, 2], [1, 3], [0, 1])


def close(ours: Params, reference: Params) -> bool:
    return all(torch.allclose(ours[n], reference[n], rtol=1e-9, atol=1e-10) for n in reference)


def mean(models: list[Params], weights: list[float]) -> Params:
    total = sum(weights)
    return {n: sum(w / total * m[n] for w, m in zip(weights, models, strict=True)) for n in models[0]}


@pytest.mark.parametrize("weight", ["examples", "uniform"])
def test_fedavg_three_rounds(weight: str, float64: None) -> None:
    run = TinyRun("fedavg", {"weight": weight}, sampler=Given(*COHORTS), optimizer=SGD(0.9))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = [local_sgd(run, k, w, round, momentum=0.9)[0] for k in cohort]
        w = mean(models, [SIZES[k] if weight == "examples" else 1 for k in cohort])
    assert close(run.rounds(3).state["model"], w)


def test_fedprox_three_rounds(float64: None) -> None:
    run = TinyRun("fedprox", {"mu": 0.7}, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        start = w

        def pull(p: Params, start: Params = start) -> torch.Tensor:
            return 0.5 * 0.7 * sum(((p[n] - start[n]) ** 2).sum() for n in p)

        models = [local_sgd(run, k, start, round, extra=pull)[0] for k in cohort]
        w = mean(models, [SIZES[k] for k in cohort])
    assert close(run.rounds(3).state["model"], w)


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("eta_g", [1.0, 0.5])
def test_scaffold_three_rounds(rho: float, eta_g: float, float64: None) -> None:
    run = TinyRun("scaffold", {"server_lr": eta_g}, sampler=Given(*COHORTS), optimizer=SGD(rho))
    w = dict(run.state["model"])
    c = {n: torch.zeros_like(p) for n, p in w.items()}
    own = {k: {n: torch.zeros_like(p) for n, p in w.items()} for k in range(4)}
    for round, cohort in enumerate(COHORTS):
        models, changes = [], []
        for k in cohort:

            def correct(g: Params, k: int = k, c: Params = c) -> Params:
                return {n: g[n] - own[k][n] + c[n] for n in g}

            trained, tau = local_sgd(run, k, w, round, momentum=rho, correct=correct)
            # sum over steps of the momentum's total weight: sum_{s=1..tau} (1 - rho^(tau-s+1)) / (1 - rho)
            effective = sum((1 - rho ** (tau - s + 1)) / (1 - rho) for s in range(1, tau + 1))
            new = {n: own[k][n] - c[n] + (w[n] - trained[n]) / (effective * 0.1) for n in w}
            changes.append({n: new[n] - own[k][n] for n in w})
            own[k] = new
            models.append(trained)
        step = mean(models, [1.0] * len(cohort))
        w = {n: w[n] + eta_g * (step[n] - w[n]) for n in w}
        c = {n: c[n] + sum(d[n] for d in changes) / 4 for n in c}
    run.rounds(3)
    assert close(run.state["model"], w)
    assert close(run.state["control"], c)
    for k in range(4):
        assert close((run.store.get(k) or {})["control"], own[k])


def test_scaffold_sum_of_client_controls_is_the_servers(float64: None) -> None:
    run = TinyRun("scaffold", sampler=Given(*COHORTS)).rounds(3)
    for name, server in run.state["control"].items():
        total = sum((run.store.get(k) or {})["control"][name] for k in range(4))
        assert torch.allclose(total / 4, server, atol=1e-12)
        assert server.abs().sum() > 0


@pytest.mark.parametrize("nesterov", [False, True])
def test_scaffolds_control_variate_after_one_step_is_the_gradient(nesterov: bool, float64: None) -> None:
    data, model = tiny_data(dtype=torch.float64), tiny_model()
    plan = Plan(steps=1, batch_size=0)
    run = TinyRun("scaffold", data=data, model=model, plan=plan, optimizer=SGD(0.9, nesterov=nesterov))
    start = dict(run.state["model"])
    run.rounds(1)
    for client in range(4):
        x, y = data.client(client)
        module = as_module(model, start)
        slopes = torch.autograd.grad(F.cross_entropy(module(x), y), list(module.parameters()))
        for (name, _), slope in zip(module.named_parameters(), slopes, strict=True):
            torch.testing.assert_close((run.store.get(client) or {})["control"][name], slope)


def test_scaffold_leaves_a_client_without_steps_as_it_is(float64: None) -> None:
    """c_k stays, nothing is added to c for it, and the model it sends is the one it got."""
    run = TinyRun("scaffold", plan=Plan(epochs=1, batch_size=4, last_batch="drop")).rounds(2)
    held = {k: run.store.get(k) or {} for k in range(4)}
    server, start = dict(run.state["control"]), dict(run.state["model"])
    assert all(float(tree["control"]["head.weight"].abs().max()) > 0 for tree in held.values())
    task = run.algorithm.tasks["train"]
    object.__setattr__(task, "plan", Plan(epochs=1, batch_size=10, last_batch="drop"))  # 6 and 9 samples: no batch
    run.rounds(1)
    assert run.replies is not None
    assert run.replies.metric("steps").tolist() == [0, 0, 1, 1]
    for k in (0, 1):
        assert equal_trees(run.store.get(k), held[k])
        assert equal_trees({"model": run.replies.results[k].reply["model"]}, {"model": start})
        assert all(not t.any() for t in run.replies.results[k].reply["control_change"].values())
    changes = [run.replies.results[k].reply["control_change"] for k in (2, 3)]
    for name, value in run.state["control"].items():
        torch.testing.assert_close(value, server[name] + (changes[0][name] + changes[1][name]) / 4)
        for k, change in zip((2, 3), changes, strict=True):  # one step: c_k is the gradient at the start
            moved = (start[name] - run.replies.results[k].reply["model"][name]) / 0.1
            torch.testing.assert_close(change[name], moved - server[name])


def test_scaffold_wants_sgd() -> None:
    data, model = tiny_data(), tiny_model()
    with pytest.raises(ConfigError, match="sgd"):
        ALGORITHMS["scaffold"](tiny_setup(data, model, optimizer=Adam()))


def test_server_optimizers_two_rounds(float64: None) -> None:
    for name, settings in (
        ("fedavgm", {"server_lr": 0.5, "beta": 0.8}),
        ("fedadam", {"server_lr": 0.1, "beta1": 0.8, "beta2": 0.9, "tau": 1e-2}),
        ("fedyogi", {"server_lr": 0.1, "beta1": 0.8, "beta2": 0.9, "tau": 1e-2}),
    ):
        run = TinyRun(name, settings)
        w = dict(run.state["model"])
        m = {n: torch.zeros_like(p) for n, p in w.items()}
        v = {n: torch.full_like(p, 1e-4) for n, p in w.items()}
        for round in range(2):
            models = [local_sgd(run, k, w, round)[0] for k in range(4)]
            average = mean(models, list(map(float, SIZES)))
            for n in w:
                d = average[n] - w[n]
                if name == "fedavgm":
                    m[n] = 0.8 * m[n] + d
                    w[n] = w[n] + 0.5 * m[n]
                    continue
                m[n] = 0.8 * m[n] + 0.2 * d
                if name == "fedadam":
                    v[n] = 0.9 * v[n] + 0.1 * d**2
                else:
                    v[n] = v[n] - 0.1 * d**2 * torch.sign(v[n] - d**2)
                w[n] = w[n] + 0.1 * m[n] / (v[n].sqrt() + 1e-2)
        assert close(run.rounds(2).state["model"], w), name


def test_local_clients_train_alone_and_send_nothing(float64: None) -> None:
    run = TinyRun("local", sampler=Everyone(), with_test=True)
    start = dict(run.state["model"])
    own = dict.fromkeys(range(4), start)
    for round in range(2):
        own = {k: local_sgd(run, k, own[k], round)[0] for k in range(4)}
    run.rounds(2)
    assert close(run.state["model"], start), "the server learns nothing"
    assert run.replies is not None
    for k in range(4):
        assert close((run.store.get(k) or {})["personal"], own[k])
        x, y = samples(run, k)
        right = (forward(own[k], x).argmax(1) == y).sum()
        assert run.replies.metric("personal_correct")[k] == right
    assert all(not tree for result in run.replies.results for tree in result.reply.values())
    assert run.algorithm.predictor(run.state) is None


def test_centralized_is_sgd_on_the_union(float64: None) -> None:
    data = pooled(tiny_data(dtype=torch.float64))
    assert len(data) == 1
    run = TinyRun("centralized", data=data)
    assert run.algorithm.pools_data
    w, _ = local_sgd(run, 0, dict(run.state["model"]), 0)
    assert close(run.rounds(1).state["model"], w)


def test_fedprox_is_short() -> None:
    source = inspect.getsource(inspect.getmodule(ALGORITHMS["fedprox"]))  # type: ignore[arg-type]
    statements = [node for node in ast.parse(source).body[1:] if not isinstance(node, ast.Import | ast.ImportFrom)]
    assert sum(node.end_lineno - node.lineno + 1 for node in statements) < 25  # type: ignore[operator]


def test_scaffolds_server_counts_all_clients_there_are() -> None:
    """K = 4, two of them there: c += 2/4 * (3 + 5) / 2, whatever their samples."""
    results = tuple(Result({"control_change": {"w": torch.tensor([v])}}, {}, {}) for v in (3.0, 5.0))
    replies = Replies((0, 2), results, torch.tensor([1, 9]), {})
    state = {"control": {"w": torch.tensor([1.0])}}
    new = ControlVariates(SGD(), 4).update(state, replies, World(0, [0, 2], np.ones(4), Key(0)))
    assert new["control"]["w"].tolist() == [3.0]


def test_scaffold_corrects_the_model_alone() -> None:
    job: Any = SimpleNamespace(memory={"control": {"w": torch.tensor([2.0])}}, shared={"control": {"w": torch.ones(1)}})
    grads = {"model": {"w": torch.tensor([8.0])}, "other": {"v": torch.tensor([9.0])}}
    found = ControlVariates(SGD(), 4).grad(job, {}, grads)
    assert (found["model"]["w"].tolist(), found["other"]) == ([7.0], grads["other"])
