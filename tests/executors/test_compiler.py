"""Compiled steps: refused where they cannot help. Their numbers are tested in `tests/executors/test_stack.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accord import load_config
from accord.engine.build import build_model
from accord.errors import ConfigError
from accord.executors.gpu.compiler import apart, check_compiler
from accord.models import MODELS
from accord.parts.heads import orthonormal_head
from support.federation import suited, tiny_data, tiny_model


def test_refused_on_a_cpu_before_any_work() -> None:
    with pytest.raises(ConfigError, match=r"compile = true is for GPUs.*set compile to false"):
        build_model(load_config(None, ["compile=true"]), tiny_data().facts, None, torch.device("cpu"))


def test_refused_where_clients_are_not_side_by_side() -> None:
    config = load_config(None, ["compile=true", "executor=sequential"])
    with pytest.raises(ConfigError, match=r"executor = 'sequential' has none: use executor = 'auto'"):
        build_model(config, tiny_data().facts, None, torch.device("cuda"))


def test_what_is_not_even_tried() -> None:
    def task(own: str = "", private: Any = None, *stacks: bool) -> Any:
        parts = [SimpleNamespace(name=f"part {number}", stacks=able) for number, able in enumerate(stacks)]
        return SimpleNamespace(parts=parts, private=private, has_own=lambda *names: own in names)

    assert apart(task()) == apart(task("noise", None, True, True)) == ""
    assert apart(task("", None, True, False)) == "its part part 1 does not allow it"
    assert "every sample's gradient is clipped by itself" in apart(task("", "clipped", True))
    for own in ("step", "objective"):
        assert apart(task(own, None, True)) == "it has a step of its own"


def test_a_compiler_that_does_not_work_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler found\nmore")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(ConfigError, match=r"does not work here \(no compiler found\): install"):
        check_compiler(torch.device("cuda"))


def test_another_head_keeps_the_form() -> None:
    form = {"bf16": True, "channels_last": True, "compiled": True}
    model = orthonormal_head(tiny_model(form=form))
    assert {name: getattr(model, name) for name in form} == form
    assert any("Stackable" in type(layer).__name__ for layer in model._train.modules())


def test_the_users_network_stays_as_it_is() -> None:
    network = MODELS["mcmahan_cnn"]((1, 28, 28), 10)
    model = suited(network, form={"compiled": True})
    assert all("Stackable" not in type(layer).__name__ for layer in model.module(*model.init()).modules())
    assert any("Stackable" in type(layer).__name__ for layer in model._train.modules())
