"""Compiled steps: refused where they cannot help, and the same numbers (traced only: CI has no GPU compiler)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import accord.core.task
from accord import load_config
from accord.core.compiling import check_compiler
from accord.core.model import Model
from accord.engine.build import build_model
from accord.errors import ConfigError
from accord.models import MODELS
from accord.parts.orthonormal import orthonormal_head
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model


def test_refused_on_a_cpu_before_any_work() -> None:
    with pytest.raises(ConfigError, match=r"compile = true is for GPUs.*set compile to false"):
        build_model(load_config(None, ["compile=true"]), tiny_data(), None, torch.device("cpu"))


def test_a_compiler_that_does_not_work_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler found\nmore")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(ConfigError, match=r"does not work here \(no compiler found\): install"):
        check_compiler(torch.device("cuda"))


@pytest.mark.parametrize("name", ["fedavg", "fedmix"])
def test_the_traced_step_is_the_same_to_the_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[Any] = []

    def trace(function: Any) -> Any:
        traced.append(function)
        return torch.compile(function, backend="eager")

    monkeypatch.setattr(accord.core.task, "compiled", trace)
    runs = [
        TinyRun(name, model=tiny_model(form={"compiled": compiled}), sampler=Given([0, 2])).rounds(2)
        for compiled in (True, False)
    ]
    assert equal_trees(runs[0].state, runs[1].state)
    assert bool(traced) == (name == "fedavg")  # FedMix derives its loss twice, which cannot be compiled


def test_another_head_keeps_the_form() -> None:
    form = {"bf16": True, "channels_last": True, "compiled": True}
    model = orthonormal_head(tiny_model(form=form))
    assert {name: getattr(model, name) for name in form} == form


def test_the_users_network_stays_as_it_is() -> None:
    network = MODELS["mcmahan_cnn"]((1, 28, 28), 10)
    model = Model(network, compiled=True)
    assert all(type(layer).__name__ != "ProductConv2d" for layer in model.module(*model.init()).modules())
    assert any(type(layer).__name__ == "ProductConv2d" for layer in model._train.modules())
