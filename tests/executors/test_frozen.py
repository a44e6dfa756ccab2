"""What the network's owner froze stays as it was, to the bit, whatever the method and whoever runs the clients."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from accord.core.methods import ALGORITHMS
from accord.core.model import Model
from accord.core.optim import SGD, Adam
from accord.core.plan import Plan
from accord.errors import ConfigError
from accord.executors.gpu import compiler
from accord.executors.gpu.batched import Batched
from accord.executors.processes import Processes
from accord.executors.sequential import Sequential
from accord.models import adapt
from support.federation import TinyRun, suited, tiny_data
from support.frozen import check, tower, values

NAMED = (
    *("fedavg", "fedavgm", "fedadam", "scaffold", "feddyn", "fedprox", "fednova", "krum", "median", "fedrane"),
    *("fedufo", "fedbr", "moon", "ditto", "fedbn", "fedper", "local"),
)
ELSEWHERE = {"centralized": "pools the data of all clients", "fedfusion": "needs maps"}
SIZES = (6, 8, 12, 15)
DATA = tiny_data(SIZES)


def moved(run: TinyRun) -> set[str]:
    """What the clients' training changed of the parameters they keep or sent."""
    first = run.model.init()[0]
    assert run.replies is not None
    found = set()
    for result in run.replies.results:
        for tree in (*result.reply.values(), *result.memory.values()):
            found |= {n for n, t in tree.items() if n in first and t.shape == first[n].shape and (t != first[n]).any()}
    return found


def run(name: str, executor: Any, optimizer: Any = None, **form: bool) -> TinyRun:
    optimizer = optimizer or SGD(momentum=0.5, weight_decay=0.1)
    plan = Plan(epochs=2, batch_size=4, last_batch="fill")
    model = suited(tower(), form=form)
    data = tiny_data(SIZES, dtype=torch.get_default_dtype())
    settings = {"lr": 0.05} if name == "pfedme" else {}
    with warnings.catch_warnings():  # what cannot be recorded or stacked runs one by one, and says so
        warnings.simplefilter("ignore")
        return TinyRun(
            name, data=data, model=model, executor=executor, optimizer=optimizer, plan=plan, with_test=True, **settings
        ).rounds(2)


@pytest.mark.parametrize("executor", [Sequential, Batched], ids=["sequential", "lanes"])
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ELSEWHERE])
def test_no_method_moves_what_is_frozen(name: str, executor: Any) -> None:
    found = run(name, executor)
    check(found, values(tower()))
    assert {"module.wide.weight", "module.norm.weight"} <= moved(found) or name in {"apple"}
    found.close()


def test_the_methods_that_were_named_are_there() -> None:
    assert set(NAMED) <= set(ALGORITHMS)


def test_maps_of_a_frozen_body_are_fused() -> None:
    check(run("fedfusion", Sequential), values(tower()))


@pytest.mark.parametrize("name", ["fedavgm", "scaffold", "fedper"])
def test_workers_leave_it_too(name: str) -> None:
    found = run(name, lambda site, tasks: Processes(site, tasks, workers=2))
    check(found, values(tower()))
    same = run(name, Sequential)
    assert all(torch.equal(found.state["model"][n], t) for n, t in same.state["model"].items())
    found.close()


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon"])
def test_stacked_clients_leave_it_too(name: str, float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []
    monkeypatch.setattr(compiler, "compiled", lambda graph: graphs.append(graph) or graph)
    found = run(name, Batched, compiled=True)
    assert graphs
    check(found, values(tower()))
    same = run(name, Sequential)
    assert all(torch.allclose(found.state["model"][n], t, rtol=1e-9) for n, t in same.state["model"].items())


@pytest.mark.parametrize("optimizer", [SGD(), Adam(weight_decay=0.1, decoupled=True)])
def test_training_is_that_of_plain_torch(optimizer: Any, float64: None) -> None:
    data = tiny_data((12,), dtype=torch.float64)
    model = suited(tower().double())
    plan = Plan(epochs=3, batch_size=4, last_batch="fill")
    found = TinyRun("fedavg", data=data, model=model, optimizer=optimizer, plan=plan, lr=0.05)
    module = tower().double()
    module.train()
    module.module.still.eval()  # type: ignore[operator, union-attr]
    trained = [p for p in module.parameters() if p.requires_grad]
    own = (
        torch.optim.AdamW(trained, 0.05, weight_decay=0.1)
        if isinstance(optimizer, Adam)
        else torch.optim.SGD(trained, 0.05)
    )
    for rows in found.batches(0):
        x, y = data.train_pool.take(rows)
        own.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        own.step()
    found.rounds(1)
    wanted = module.state_dict()
    got = model.module(found.state["model"], found.state["buffers"]).state_dict()
    assert all(torch.allclose(got[name], tensor, rtol=1e-9, atol=1e-12) for name, tensor in wanted.items())


def test_traffic_counts_only_what_moves() -> None:
    model = suited(tower())
    params, buffers = model.init()
    assert sorted(params) == sorted(
        f"module.{name}"
        for name in ("head.bias", "head.weight", "norm.bias", "norm.weight", "still.bias", "wide.bias", "wide.weight")
    )
    assert sorted(buffers) == [f"module.norm.{leaf}" for leaf in ("num_batches_tracked", "running_mean", "running_var")]
    assert model.norm_names == ("module.norm.bias", "module.norm.weight", "module.still.bias")


def test_a_network_in_evaluation_mode_as_a_whole_trains() -> None:
    network = tower()
    network.module.still.train()  # type: ignore[operator, union-attr]
    module = network.module.eval()
    for given in (adapt(module, head="head"), copy.deepcopy(network).eval()):
        model = Model(given)
        assert all(part.training for part in model._train.modules())
        assert "module.still.running_mean" in model.init()[1]
        assert model.couples_batch


def test_batch_norm_that_stands_still_couples_nobody() -> None:
    network = tower()
    assert Model(network).couples_batch
    network.module.norm.eval()  # type: ignore[operator, union-attr]
    assert not Model(network).couples_batch


def with_frozen(part: str) -> Model:
    network = tower()
    for name, parameter in network.named_parameters():
        if name.startswith("module.head") == (part == "head"):
            parameter.requires_grad_(False)
    return Model(network)


@pytest.mark.parametrize(
    ("name", "settings", "part", "message"),
    [
        ("fedper", {}, "head", "head of this network is frozen"),
        ("fedrep", {}, "head", "head of this network is frozen"),
        ("fedrod", {}, "head", "head of this network is frozen"),
        ("fedbabu", {"tune": "head"}, "head", "head of this network is frozen"),
        ("spherefed", {}, "head", "that head is frozen"),
        ("fedrane", {"frozen_head": True}, "head", "that head is frozen"),
        ("fedper", {}, "body", "has a frozen body"),
        ("fedrep", {}, "body", "has a frozen body"),
        ("fedbabu", {}, "body", "has a frozen body"),
        ("spherefed", {}, "body", "no body is trained"),
    ],
)
def test_methods_whose_part_is_frozen_are_refused(name: str, settings: Any, part: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TinyRun(name, settings, data=DATA, model=with_frozen(part))


def test_fedbn_needs_norm_layers_that_move() -> None:
    network = tower()
    for layer in (network.module.norm, network.module.still):
        layer.eval().requires_grad_(False)  # type: ignore[operator, union-attr]
    with pytest.raises(ConfigError, match="none with values that move"):
        TinyRun("fedbn", data=DATA, model=Model(network))


@pytest.mark.parametrize(
    "name", ["fedavg", "scaffold", "moon", "fedufo", "fedbr", "fedrane", "fedmix", "dann", "fedmmd"]
)
@pytest.mark.parametrize("part", ["body", "head"])
def test_only_the_head_or_only_the_body_trains(name: str, part: str) -> None:
    model = with_frozen(part)
    first = model.init()[0]
    plan = Plan(epochs=1, batch_size=4, last_batch="fill")
    found = TinyRun(name, data=DATA, model=model, plan=plan, with_test=True).rounds(2)
    assert set(found.state["model"]) == set(first)
    assert all(name.startswith("module.head") == (part == "body") for name in first)
    assert (found.state["model"][next(iter(first))] != next(iter(first.values()))).any()
