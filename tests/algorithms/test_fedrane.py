"""FedRANE as a method: local steps, rounds, evaluation, frozen head and refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedrane import fedrane
from accord.algorithms.fedrane.relations import Relations
from accord.core.model import Model
from accord.core.plan import Plan
from accord.core.tensors import flatten
from accord.data.federated import FederatedData, Groups, Pool
from accord.errors import ConfigError, DivergedError
from accord.executors.processes import Processes
from accord.measures.predictions import Predictions
from accord.models import adapt
from accord.parts.heads import orthonormal_rows
from support.federation import Given, TinyRun, as_module, equal_trees, tiny_data, tiny_model, tiny_setup
from support.fedrane import (
    augment_reference,
    bargain_reference,
    train_reference,
)
from support.personal import FILLED, norm_model


def run_of(data: FederatedData, model: Model | None = None, setup: Any = None, **kwargs: Any) -> TinyRun:
    model = model or tiny_model()
    chosen = {name: kwargs.pop(name) for name in ("executor", "with_test", "seed") if name in kwargs}
    algorithm = fedrane(tiny_setup(data, model, **(setup or {})), **kwargs)
    return TinyRun(algorithm, data=data, model=model, **chosen)


# rounds -----------------------------------------------------------------------------------------------------------


def close(a: Any, b: Any) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-7, atol=1e-8)


def test_one_local_step(float64: None) -> None:
    data = tiny_data(dtype=torch.float64)
    run = run_of(data, setup={"plan": Plan(steps=1, batch_size=5)})
    state = run.state
    run.rounds()
    part = run.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    assert run.replies is not None
    for client, result in enumerate(run.replies.results):
        model, relations = train_reference(run, state, client, 0, part)
        close(result.reply["model"], model)
        close(result.reply["relations"], relations)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "scale": "sum",
            "power": "uniform",
            "graph": "lowrank",
            "similarity": "cosine",
            "symmetric": False,
        },
        {"gne": False, "top_k": 2, "edge_weight": False, "hops": 2},
        {"attention": "gat", "edge_weight": False, "residual": False},
    ],
)
def test_three_rounds_with_some_of_the_clients(float64: None, settings: dict[str, Any]) -> None:
    cohorts = ([0, 2], [1, 3], [0, 1])
    data = tiny_data(dtype=torch.float64)
    run = run_of(data, setup={"sampler": Given(*cohorts), "plan": Plan(epochs=1, batch_size=4)}, **settings)
    part = run.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    state = {tree: run.state[tree] for tree in ("model", "relations")}
    for round, cohort in enumerate(cohorts):
        trained = [train_reference(run, state, client, round, part) for client in cohort]
        start = torch.cat([flatten(state["model"]), flatten(state["relations"])])
        flat = [torch.cat([flatten(model), flatten(relations)]) for model, relations in trained]
        d = np.stack([(one - start).numpy() for one in flat])
        sizes = np.array([data.sizes[k] for k in cohort], dtype=float)
        a = sizes / sizes.sum()
        if settings.get("gne", True):
            uniform = settings.get("power") == "uniform"
            p = bargain_reference(d, np.ones(len(a)) if uniform else a * len(a))
            step = p @ d
            by_length = min(np.linalg.norm(a @ d) / np.linalg.norm(step), 2 / p.sum())
            step *= 1 / p.sum() if settings.get("scale") == "sum" else by_length
        else:
            step = a @ d
        new, place = start + torch.tensor(step), 0
        for tree in state:
            moved = {}
            for name in sorted(state[tree]):
                count = state[tree][name].numel()
                moved[name] = new[place : place + count].view_as(state[tree][name])
                place += count
            state[tree] = moved
        run.rounds()
        close(run.state["model"], state["model"])
        close(run.state["relations"], state["relations"])


def test_without_both_it_is_fedavg() -> None:
    data, model = tiny_data(), tiny_model()
    setup = tiny_setup(data, model)
    plain = TinyRun(fedavg(setup), data=data, model=model).rounds(2)
    assert equal_trees(plain.state, run_of(data, model, lra=False, gne=False).rounds(2).state)


def test_module_and_model_travel_and_learn() -> None:
    run = run_of(tiny_data(), hops=2)
    before = run.state
    assert set(run.algorithm.message(before)) == {"model", "buffers", "relations"}
    first = run.rounds().replies
    assert first is not None
    assert set(first.results[0].reply) == {"model", "buffers", "relations"}
    losses = [float(first.metric("loss").sum())]
    run.rounds(4)
    assert run.replies is not None
    assert float(run.replies.metric("loss").sum()) < losses[0]
    assert len(run.state["relations"]) == 6
    assert not any(torch.equal(t, before["relations"][n]) for n, t in run.state["relations"].items())


def test_no_contrast_at_weight_zero(float64: None) -> None:
    data = tiny_data(dtype=torch.float64)
    run = run_of(data, setup={"plan": Plan(steps=1, batch_size=5)}, lambda_cd=0.0)
    state = run.state
    run.rounds()
    x, y = data.client(0)
    rows = run.batches(0, round=0)[0]
    module: Any = as_module(run.model, state["model"])
    part = run.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    after = augment_reference(module.features(x[rows]), state["relations"], part)
    assert run.replies is not None
    expected = F.cross_entropy(module.head(after), y[rows]) * 5
    torch.testing.assert_close(run.replies.results[0].metrics["loss"], expected.detach())


def test_processes_give_the_same_bits() -> None:
    data, model = tiny_data(), tiny_model()
    one = run_of(data, model, with_test=True).rounds(2)
    other = run_of(data, model, with_test=True, executor=partial(Processes, workers=2)).rounds(2)
    other.close()
    assert equal_trees(one.state, other.state)


def test_the_last_batch_is_filled_for_the_graph_only() -> None:
    data = tiny_data()
    assert run_of(data).algorithm.tasks["train"].plan.last_batch == "fill"
    assert run_of(data, lra=False).algorithm.tasks["train"].plan.last_batch == "pad"


# evaluation -------------------------------------------------------------------------------------------------------


def logits_of(run: TinyRun, x: Tensor) -> Tensor:
    predictor = run.algorithm.predictor(run.state)
    assert predictor is not None
    with torch.no_grad():
        return predictor(x).logits


def test_global_evaluation(float64: None) -> None:
    data = tiny_data(dtype=torch.float64)
    x = data.client(3)[0]
    batch = run_of(data)
    module: Any = as_module(batch.model, batch.state["model"])
    part = batch.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    expected = module.head(augment_reference(module.features(x), batch.state["relations"], part)).detach()
    torch.testing.assert_close(logits_of(batch, x), expected)
    torch.testing.assert_close(logits_of(run_of(data, evaluation="support"), x), expected)
    torch.testing.assert_close(logits_of(run_of(data, evaluation="none"), x), module(x).detach())
    torch.testing.assert_close(logits_of(batch, x[:1]), module(x[:1]).detach())  # alone: no graph
    small = logits_of(run_of(data, graph_size=4), x)
    assert small.shape == expected.shape
    assert not torch.allclose(small, expected)


def test_accuracy_does_not_depend_on_the_order_of_the_test_pool(float64: None) -> None:
    """Noisy samples around three centres, sorted by class or not: the same model, up to which samples meet."""
    centres = np.random.default_rng(9).normal(size=(3, 64))

    def pool(count: int, seed: int, noise: float) -> Pool:
        y = np.repeat(np.arange(3), count // 3)
        x = centres[y] + noise * np.random.default_rng(seed).normal(size=(count, 64))
        return Pool(torch.tensor(x).view(count, 1, 8, 8), torch.tensor(y))

    train, test = pool(120, 0, 2.0), pool(600, 1, 4.0)
    groups = Groups.of(np.array_split(np.random.default_rng(0).permutation(120), 4))
    none = Groups.of([[]] * 4)
    data = FederatedData("sorted", train, test, 3, groups, none, none)
    order = np.random.default_rng(3).permutation(600)
    shuffled = replace(data, test_pool=Pool(test.x[order], test.y[order]))
    run = run_of(data, setup={"plan": Plan(epochs=2, batch_size=16)}, graph_size=50).rounds(10)
    predictor, met = run.algorithm.predictor(run.state), []
    assert predictor is not None
    assert run.algorithm.judges_together

    def watched(x: Tensor) -> Any:
        met.append(len(x))
        return predictor(x)

    shown = [Predictions(watched, each, 200, torch.device("cpu"), together=True) for each in (data, shuffled)]
    found = [predictions.plain.score.mean() for predictions in shown]
    assert met == [200] * 6
    assert found[0] > 0.6
    assert abs(found[0] - found[1]) < 0.03


def test_graphs_of_the_evaluation_are_mixed_and_none_is_left_with_one_sample() -> None:
    seen = []

    class Watching(Relations):
        def augment(self, weights: Any, features: Tensor, mask: Tensor) -> Tensor:
            seen.append(features[:, 0].tolist())
            return features

    model = tiny_model("linear", shape=(4,))
    params, buffers = model.init()
    x = torch.arange(9.0).repeat(4, 1).mT
    Watching().together(model, {"model": params, "buffers": buffers, "relations": {}}, x, 4)
    assert [len(graph) for graph in seen] == [3, 3, 3]
    order = [row for graph in seen for row in graph]
    assert sorted(order) == list(range(9))
    assert order != list(range(9))
    assert len(Watching().together(model, {"model": params, "buffers": buffers, "relations": {}}, x[:0], 4).logits) == 0


@pytest.mark.parametrize("evaluation", ["none", "batch", "support"])
def test_personal_accuracy_is_measured_with_the_graph(float64: None, evaluation: Any) -> None:
    data = tiny_data(dtype=torch.float64)
    run = run_of(data, with_test=True, evaluation=evaluation, setup={"plan": Plan(epochs=1, batch_size=6)})
    part = run.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    run.rounds()
    assert run.replies is not None
    for client, result in enumerate(run.replies.results):
        x, y = data.client(client)  # the tiny federation tests on the training samples
        module: Any = as_module(run.model, result.reply["model"])
        z = module.features(x).detach()
        if evaluation == "batch":
            z = augment_reference(z, result.reply["relations"], part)
        if evaluation == "support":
            z = torch.stack(
                [
                    augment_reference(torch.cat([z, z[i : i + 1]]), result.reply["relations"], part)[-1]
                    for i in range(len(z))
                ]
            )
        right = float((module.head(z).argmax(1) == y).sum())
        assert float(result.metrics["personal_correct"]) == right
        assert float(result.metrics["personal_examples"]) == len(y)


@pytest.mark.parametrize("evaluation", ["batch", "support"])
def test_personal_accuracy_is_that_of_the_trained_running_statistics(evaluation: Any) -> None:
    """Statistics as of the first round (mean 0, variance 1) would let other samples be right."""
    data = tiny_data()
    shifted = replace(data, train_pool=Pool(5 + 3 * data.train_pool.x, data.train_pool.y))
    shifted = replace(shifted, test_pool=shifted.train_pool)
    run = run_of(shifted, norm_model(), with_test=True, evaluation=evaluation, setup={"plan": FILLED})
    part = run.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    first = run.state["buffers"]
    run.rounds()
    assert run.replies is not None
    found, trained, received = [], [], []
    for client, result in enumerate(run.replies.results):
        x, y = shifted.client(client)
        found.append(float(result.metrics["personal_correct"]))
        for buffers, counts in ((result.reply["buffers"], trained), (first, received)):
            trees = {**result.reply, "buffers": buffers}
            if evaluation == "batch":
                out = part.together(run.model, trees, x, 128)
            else:
                out = part.supported(run.model, trees, x, x, 128)
            counts.append(float((out.logits.argmax(1) == y).sum()))
    assert found == trained
    assert found != received


def test_support_judges_each_sample_for_itself(float64: None) -> None:
    data = tiny_data(dtype=torch.float64)
    run = run_of(data)
    part = run.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    known, x = data.client(3)[0], data.client(2)[0]
    whole = part.supported(run.model, run.state, x, known, 8).logits
    # Each sample last in a graph with seven of the fifteen known ones, chosen once by a fixed seed.
    module: Any = as_module(run.model, run.state["model"])
    chosen = torch.randperm(15, generator=torch.Generator().manual_seed(0))[:7]
    support, plain = module.features(known[chosen]), module.features(x)
    graphs = [torch.cat([support, plain[i : i + 1]]) for i in range(len(x))]
    alone = torch.stack([augment_reference(graph, run.state["relations"], part)[-1] for graph in graphs])
    torch.testing.assert_close(whole, module.head(alone).detach(), rtol=1e-7, atol=1e-8)
    assert not torch.allclose(whole, module.head(plain).detach(), atol=1e-2), "the graph must show"
    for i in range(len(x)):
        torch.testing.assert_close(
            part.supported(run.model, run.state, x[i : i + 1], known, 8).logits, whole[i : i + 1]
        )


# the frozen head --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"lra": False}, {"gne": False}, {"lra": False, "gne": False}])
def test_frozen_head(settings: dict[str, Any]) -> None:
    data, model = tiny_data(), tiny_model()
    run = run_of(data, model, frozen_head=True, **settings)
    head = run.state["model"]["head.weight"]
    torch.testing.assert_close(head @ head.mT, torch.eye(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(head, orthonormal_rows(model.init()[0]["head.weight"]))
    run.rounds(3)
    assert torch.equal(run.state["model"]["head.weight"], head)
    assert "head.bias" not in run.state["model"]
    assert run.replies is not None
    assert "head.weight" not in run.replies.results[0].reply["model"]
    assert float(logits_of(run, data.client(0)[0]).abs().max()) <= 1 + 1e-6
    assert not torch.equal(run.state["model"]["neck.0.weight"], model.init()[0]["neck.0.weight"])


def test_frozen_head_of_an_adapted_module() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 3)))
    data, model = tiny_data(), Model(adapt(module, "1.2", example=torch.zeros(2, 1, 8, 8)))
    run = run_of(data, model, frozen_head=True).rounds()
    assert run.state["model"]["module.1.2.weight"].shape == (3, 6)
    assert logits_of(run, data.client(0)[0]).shape == (6, 3)


# what is refused --------------------------------------------------------------------------------------------------


def test_refusals() -> None:
    data, model = tiny_data(), tiny_model()
    with pytest.raises(ConfigError, match="batch of one"):
        run_of(data, setup={"plan": Plan(batch_size=1)})
    run_of(data, setup={"plan": Plan(batch_size=1)}, lra=False)
    one = tiny_data(sizes=(9,))
    with pytest.raises(ConfigError, match="nobody to bargain"):
        run_of(one)
    run_of(one, gne=False).rounds()
    model.num_features = 0
    with pytest.raises(ConfigError, match="has 0 of them"):
        run_of(data, model)
    with pytest.raises(ConfigError, match="has 1 of them"):
        run_of(data, tiny_model(hidden=(1,)))
    run_of(data, tiny_model(hidden=(2,)))  # two can be correlated, and two samples are neighbours
    run_of(data, setup={"plan": Plan(batch_size=2)})
    with pytest.raises(ConfigError, match="2 features for 3 classes"):
        run_of(data, tiny_model(hidden=(2,)), frozen_head=True)


@pytest.mark.parametrize(
    "setting",
    [
        {"lambda_b": 0.0},
        {"tau": -1.0},
        {"eps": float("nan")},
        {"lambda_cd": -0.1},
        {"radius": float("inf")},
        {"hops": 0},
        {"top_k": -1},
        {"top_k": 1.5},
        {"graph_size": 1},
        {"graph": "dense"},
        {"similarity": "dot"},
        {"evaluation": "test"},
        {"scale": "mean"},
        {"power": "equal"},
    ],
)
def test_settings_out_of_bounds(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        run_of(tiny_data(), **setting)


def test_the_model_given_back_predicts_as_the_method_is_judged() -> None:
    data = tiny_data()
    x = data.client(0)[0]
    for settings in ({}, {"hops": 2, "graph_size": 3}, {"lra": False}, {"evaluation": "none"},
                     {"lra": False, "frozen_head": True}):  # fmt: skip
        run = run_of(data, **settings).rounds()
        module = run.algorithm.export(run.state)
        assert module is not None
        torch.testing.assert_close(module(x).detach(), logits_of(run, x))


def test_a_client_with_one_sample_and_a_last_batch_of_one() -> None:
    data, model = tiny_data(sizes=(1, 5, 9, 4)), tiny_model()
    setup = replace(tiny_setup(data, model, plan=Plan(epochs=1, batch_size=4)), free_last_batch=False)
    run = TinyRun(fedrane(setup), data=data, model=model, with_test=True)
    assert [len(rows) for rows in run.batches(1)] == [4, 1]
    run.rounds(2)
    assert run.replies is not None
    assert len(run.replies) == 4


@pytest.mark.parametrize("mode", ["official", "ridge", "lowrank"])
def test_diverged_training_is_named(mode: Any) -> None:
    with pytest.raises(DivergedError, match="diverged in round 1"):
        run_of(tiny_data(), graph=mode, setup={"lr": 1e30}).rounds(3)


@pytest.mark.parametrize("evaluation", ["batch", "support"])
def test_personal_accuracy_is_taken_in_graphs_of_the_size_that_was_asked_for(evaluation: Any) -> None:
    """Judged with the trained module; graphs of all samples would let others be right."""
    data, size = tiny_data(sizes=(30, 31, 32, 33)), 3
    run = run_of(data, with_test=True, evaluation=evaluation, graph_size=size)
    first = run.state["relations"]
    run.rounds(3)
    part = run.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    assert run.replies is not None
    counts: dict[str, list[float]] = {"found": [], "asked": [], "large": [], "first": []}
    for client, result in enumerate(run.replies.results):
        x, y = data.client(client)
        counts["found"].append(float(result.metrics["personal_correct"]))
        for name, graph, relations in (
            ("asked", size, result.reply["relations"]),
            ("large", 128, result.reply["relations"]),
            ("first", size, first),
        ):
            trees = {**result.reply, "relations": relations}
            if evaluation == "batch":
                out = part.together(run.model, trees, x, graph)
            else:
                out = part.supported(run.model, trees, x, x, graph)
            counts[name].append(float((out.logits.argmax(1) == y).sum()))
    assert counts["found"] == counts["asked"]
    assert counts["found"] != counts["large"]
    assert counts["found"] != counts["first"]


def test_a_clients_own_model_is_judged_with_its_own_module() -> None:
    run = run_of(tiny_data()).rounds(2)
    assert run.replies is not None
    result, x = run.replies.results[1], tiny_data().client(3)[0]
    part = run.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    own = run.algorithm.local_predictor(run.state, result)  # type: ignore[attr-defined]
    torch.testing.assert_close(own(x).logits, part.together(run.model, result.reply, x, 128).logits)
    assert not torch.allclose(own(x).logits, logits_of(run, x))


def test_more_samples_than_are_judged_side_by_side(float64: None) -> None:
    """Forty in a row, 32 graphs at a time: each as it is judged alone."""
    run = run_of(tiny_data(dtype=torch.float64))
    part = run.algorithm.tasks["train"].relations  # type: ignore[attr-defined]
    known, x = run.data.client(2)[0], run.data.train_pool.x[:40]
    whole = part.supported(run.model, run.state, x, known, 8)
    assert whole.logits.shape == (40, 3)
    for i in (0, 31, 32, 39):
        torch.testing.assert_close(
            part.supported(run.model, run.state, x[i : i + 1], known, 8).logits, whole.logits[i : i + 1]
        )
