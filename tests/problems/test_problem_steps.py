"""Steps of every problem can be recorded, and stacked over clients, as executors for GPUs do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import accord
from accord.core.model import Model
from accord.data.federated import FederatedData
from accord.executors.gpu import compiler
from accord.executors.gpu.batched import Batched
from accord.executors.kernels import layers_for
from contracts.test_capture import Watched
from support.federation import TinyRun
from support.problems import problem_config, problem_data

CASES = [
    ("multilabel", ()),
    ("multilabel", ("local.class_weights=balanced",)),
    ("classification", ("local.class_weights=balanced",)),
    ("regression", ()),
    ("tokens", ()),
]


def made(task: str, sets: tuple[str, ...], out: Path, *, compiled: bool = False) -> tuple[FederatedData, Model]:
    built = accord.Federation.build(problem_config(task, "fedavg", out, *sets), problem_data(task))
    form: dict[str, Any] = {"compiled": compiled, "layers": layers_for("cpu", compiled=compiled)}
    model = Model(built.model.network, problem=built.model.problem, fields=built.model.fields, **form)
    return built.data, model


@pytest.mark.parametrize(("task", "sets"), CASES)
@pytest.mark.parametrize("method", ["fedavg", "ditto", "fedmeta", "moon"])
def test_a_step_looks_at_no_value(task: str, sets: tuple[str, ...], method: str, tmp_path: Path) -> None:
    data, model = made(task, sets, tmp_path)
    TinyRun(method, {}, data=data, model=model, executor=Watched, lr=0.01).rounds(1)


@pytest.mark.parametrize(("task", "sets"), CASES)
def test_clients_are_stacked(
    task: str, sets: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, float64: None
) -> None:
    graphs: list[Any] = []
    monkeypatch.setattr(compiler, "compiled", lambda graph: graphs.append(graph) or graph)  # type: ignore[func-returns-value]
    states = []
    for compiled in (True, False):
        data, model = made(task, sets, tmp_path, compiled=compiled)
        states.append(TinyRun("fedavg", {}, data=data, model=model, executor=Batched, lr=0.01).rounds(2).state["model"])
    assert graphs
    for name, value in states[0].items():
        assert torch.allclose(value, states[1][name], atol=1e-9), name
