"""Personal accuracy before local training: which model a client brings to a round, method by method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import accord
from accord.config import load_config
from accord.core.methods import ALGORITHMS
from accord.core.plan import Plan
from support.federation import TinyRun
from support.personal import Params, tiny
from support.reference import forward

Brought = Callable[[TinyRun, int], Params]


def received(run: TinyRun, client: int) -> Params:
    return dict(run.state["model"])


def kept(tree: str) -> Brought:
    return lambda run, client: dict(run.store.get(client)[tree])


def own_layers(run: TinyRun, client: int) -> Params:
    return {**run.state["model"], **run.store.get(client)["personal"]}


def both_heads(run: TinyRun, client: int) -> Params:
    own, model = run.store.get(client)["own_head"], dict(run.state["model"])
    return {**model, **{name: model[name] + own[name] for name in own}}


def mixture(run: TinyRun, client: int) -> Params:
    shares = run.store.get(client)["relation"]["relation"]
    cores = run.state["cores"]
    return {name: sum(shares[j] * core[j] for j in range(len(shares))) for name, core in cores.items()}


BROUGHT: dict[str, Brought] = {
    "fedavg": received,
    "fedbabu": received,
    "pfedme": received,
    "fedper": own_layers,
    "fedrep": own_layers,
    "local": kept("personal"),
    "fedmtl": kept("personal"),
    "ditto": kept("own"),
    "fml": kept("private"),
    "fedrod": both_heads,
    "apple": mixture,
}


@pytest.mark.parametrize("name", BROUGHT)
def test_the_model_a_client_brings(name: str, float64: None) -> None:
    run = tiny(ALGORITHMS[name], with_test=True).rounds(2)
    models = {client: BROUGHT[name](run, client) for client in range(4)}
    run.rounds(1)
    assert run.replies is not None
    for client, result in zip(run.replies.ids, run.replies.results, strict=True):
        x, y = run.data.client(client, "test")
        right = (forward(models[client], x).argmax(1) == y).sum()
        assert int(result.metrics["personal_before"]) == int(right)


def test_measuring_it_changes_nothing_else(tmp_path: Any) -> None:
    sets = ["rounds=2", "data.limit=200", "partition.clients=4", "executor=sequential", f"out={tmp_path}"]
    outcomes = [
        accord.run(load_config(None, [*sets, "algorithm.name=fedper", f"evaluate.personal={on}", f"name={on}"]))
        for on in ("true", "false")
    ]
    assert [m["loss"] for m in outcomes[0].metrics] == [m["loss"] for m in outcomes[1].metrics]
    summary = outcomes[0].summary
    assert summary["personal_accuracy_before"].keys() == summary["personal_accuracy"].keys()
    assert "personal_accuracy_before" not in outcomes[1].summary


@pytest.mark.parametrize(
    ("name", "options"),
    [("fedavg", {}), ("fedrane", {"evaluation": "batch"}), ("fedrane", {"evaluation": "support"})],
)
def test_without_local_steps_before_is_after(name: str, options: dict[str, Any]) -> None:
    run = tiny(ALGORITHMS[name], options, with_test=True, plan=Plan(epochs=0)).rounds(1)
    assert run.replies is not None
    assert torch.equal(run.replies.metric("personal_before"), run.replies.metric("personal_correct"))
