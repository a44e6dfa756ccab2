"""Compiled steps: refused where they cannot help. Their numbers are tested in `tests/executors/test_stack.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accord import load_config
from accord.core.types import Batch
from accord.engine.build import build_model
from accord.errors import ConfigError
from accord.executors.gpu.compiler import StackedStep, StackError, _stack_errors, apart, check_compiler
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


def test_a_step_is_compiled_once_for_all_that_lies_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    task: Any = None
    data: Any = None
    step, made, called = StackedStep(task, data), list[int](), list[Any]()

    def compile_(common: Any, mine: Any, commons: Any, stacked: Any) -> Any:
        made.append(len(commons))
        return lambda *tensors: called.append(len(made)) or [*tensors[:1]] * 4

    monkeypatch.setattr(step, "_compile", compile_)
    x = torch.zeros(2, 3, 4)
    batch = Batch(x, x[:, :, 0], x[:, :, 1], x[:, :, 2], {})
    carry = {"active": {"model": {"a": x, "b": x}}}

    def ask(shared: Any, given: Any) -> Any:
        return step({"model": {"w": shared}}, {"info": {"lr": given}}, carry, batch)

    grads, sums = ask(torch.ones(3, 2), torch.zeros(2))
    assert (list(grads), list(grads["model"]), len(sums)) == (["model"], ["a", "b"], 2)
    ask(torch.zeros(3, 2), torch.ones(2))  # other values
    assert called == [1, 1]
    ask(torch.ones(4, 2), torch.zeros(2))  # another shape of what all share
    ask(torch.ones(2, 3).t(), torch.zeros(2))  # laid out otherwise
    ask(torch.ones(3, 2, dtype=torch.float64), torch.zeros(2))
    ask(torch.ones(3, 2), torch.zeros(2, dtype=torch.float64))
    assert called == [1, 1, 2, 3, 4, 5]
    ask(torch.ones(3, 2), torch.zeros(2))
    assert called[-1] == 5
    assert len(made) == 5
    step._made.clear()
    monkeypatch.setattr(step, "_compile", lambda *given: lambda *tensors: [])
    assert ask(torch.ones(3, 2), torch.zeros(2)) == ({}, []), "where it has moved everything itself"


def test_what_goes_wrong_in_tracing_is_a_reason_of_one_line() -> None:
    for error, words in ((RuntimeError(" first\nsecond"), "first"), (KeyError(), "KeyError()")):
        with pytest.raises(StackError) as found, _stack_errors():
            raise error
        assert str(found.value) == words
    with pytest.raises(torch.OutOfMemoryError), _stack_errors():
        raise torch.OutOfMemoryError("no room")


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
