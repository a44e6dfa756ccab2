"""Compiled forwards of frozen models, without a compiler or a GPU: when they are used, and that they say the same."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from accord import load_config
from accord.algorithms.fedufo.peers import Peers
from accord.core.model import Model
from accord.engine import build
from accord.executors.gpu import compiler
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.frozen import ROWS, FrozenForward
from accord.models import adapt
from support.federation import Given, TinyRun, tiny_data, tiny_model


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples the forwards were compiled for."""
    found: list[int] = []

    def keep(graph: Any) -> Any:
        answers = graph.graph.output_node().args[0]
        found.extend(len(node.meta["val"]) for node in answers[:1])  # a step that moves all by itself answers nothing
        return graph

    monkeypatch.setattr(compiler, "compiled", keep)
    return found


def quick(name: str = "fedufo_cnn", **form: bool) -> Model:
    shape = (3, 16, 16) if "cnn" in name else (1, 8, 8)
    plain = tiny_model(name, shape=shape, form=form)
    return Model(plain.network, layers=plain.layers, quick=FrozenForward, **form)


def asked(model: Model, samples: int) -> None:
    """Compares it with the plain forward."""
    given = *model.init(), torch.randn(samples, 3, 16, 16)
    with torch.no_grad():
        for found, plain in zip(model.frozen(*given), model.reference(*given), strict=True):
            assert (found.shape, found.dtype) == (plain.shape, plain.dtype)
            assert (found - plain).abs().max() < 1e-2 if model.bf16 else torch.allclose(found, plain, atol=1e-6)


@pytest.mark.parametrize("form", [{}, {"compiled": True}, {"bf16": True, "compiled": True}, {"channels_last": True}])
def test_one_serves_all_of_about_a_size(form: dict[str, bool], made: list[int]) -> None:
    model = quick(**form)
    for samples in (5, ROWS, 9, 1):
        asked(model, samples)
    assert made == [ROWS]
    asked(model, ROWS + 1)
    asked(model, 2 * ROWS)
    assert made == [ROWS, 2 * ROWS]


def test_weights_go_by_their_names(made: list[int]) -> None:
    model, x = quick(), torch.randn(5, 3, 16, 16)
    params, buffers = model.init()  # both convolutions have a bias of 64 numbers
    with torch.no_grad():
        first = model.frozen(params, buffers, x)
        for name in sorted(params, reverse=True):
            params[name] = params.pop(name)
        assert all(map(torch.equal, model.frozen(params, buffers, x), first))
    assert made == [ROWS]


@pytest.mark.parametrize("name", ["fedufo_cnn", "report_cnn", "fedbr_cnn"])
def test_torchs_own_tracer_understands_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compiled", lambda graph: torch.compile(graph, backend="aot_eager", dynamic=False))
    asked(quick(name), 5)


def test_only_what_is_wanted_of_it_is_compiled(made: list[int]) -> None:
    model, x = quick(), torch.randn(5, 3, 16, 16)
    params, buffers = model.init()
    assert model.frozen({name: t.requires_grad_() for name, t in params.items()}, buffers, x).logits.requires_grad
    with torch.no_grad():
        maps = list[torch.Tensor]()
        model.frozen(params, buffers, x, lambda own: maps.append(own) or own)
        assert len(maps) == 1
        assert len(model.frozen(params, buffers, x[:0]).logits) == 0
        plain = tiny_model("fedufo_cnn", shape=(3, 16, 16))
        assert all(map(torch.equal, plain.frozen(params, buffers, x), plain.reference(params, buffers, x)))
    assert not made


def test_padding_would_change_what_a_batch_says_of_itself(made: list[int]) -> None:
    for tracks in (True, False):
        layers = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=tracks), nn.Linear(3, 2))
        model = Model(adapt(layers, head="2", example=torch.zeros(2, 4)), quick=FrozenForward)
        given = *model.init(), torch.randn(5, 4)
        with torch.no_grad():
            assert torch.allclose(model.frozen(*given).logits, model.reference(*given).logits, atol=1e-6)
        assert made == [ROWS]


def test_where_it_fails_models_run_as_they_are_and_one_warning_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[Any]()

    def broken(graph: Any) -> Any:
        tried.append(graph)
        raise RuntimeError("no such layer\nmore")

    monkeypatch.setattr(compiler, "compiled", broken)
    model = quick()
    with pytest.warns(RuntimeWarning, match="frozen models cannot be compiled, they run as they are: no such layer$"):
        asked(model, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(model, 200)
    assert len(tried) == 1


def test_without_room_the_executor_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(graph: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(compiler, "compiled", full)
    with pytest.raises(torch.OutOfMemoryError):
        asked(quick(), 5)


def test_whoever_compiles_steps_compiles_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "check_compiler", lambda device: None)
    for compiles in ("true", "false"):
        config = load_config(None, [f"compile={compiles}", "model.name=2nn"])
        model = build.build_model(config, tiny_data().facts, None, torch.device("cpu"))
        for one in (model, model.computing(model.network)):
            assert isinstance(one._quick, FrozenForward) == (compiles == "true")
    assert model._quick is None


@pytest.mark.parametrize("reads", ["features", "maps"])
def test_a_step_asks_in_the_plain_way(reads: Any) -> None:
    """It is recorded or compiled itself."""
    model, x = quick(), torch.randn(4, 3, 16, 16)
    model._quick = lambda *given: pytest.fail("compiled within a step")
    params, buffers = model.init()
    shared = {
        "priors": {name: t[None] for name, t in params.items()},
        "prior_buffers": {},
        "group": {"ids": torch.tensor([3])},
        "model": params,
        "buffers": buffers,
    }
    info = {"round": torch.tensor(1), "client": torch.tensor(0), "lr": torch.tensor(0.1)}
    job: Any = SimpleNamespace(shared=shared, info=info)
    batch: Any = SimpleNamespace(x=x, index=torch.zeros(0), weight=torch.ones(4))
    peers = Peers(features=True, reads=reads)
    rows = peers.rows(model, job, {"Peers": {"features": x}}, batch, "features")
    assert rows is not None
    assert rows.shape[:2] == (4, 1)


def test_fedufo_learns_the_same(made: list[int], float64: None) -> None:
    runs = []
    for compiled in (True, False):
        model = quick("mlp", compiled=compiled)
        model._quick = model._quick if compiled else None
        options: Any = {"data": tiny_data(dtype=torch.float64), "sampler": Given([0, 2], [1, 3, 0])}
        options["settings"] = {"stage_one_rounds": 0}
        runs.append(TinyRun("fedufo", model=model, executor=Batched, **options).rounds(2))
    assert made.count(ROWS) == 1  # of the group's models and of the received one
    for leaf, value in runs[1].state["model"].items():
        assert (runs[0].state["model"][leaf] - value).abs().max() < 1e-9 * value.abs().max(), leaf
