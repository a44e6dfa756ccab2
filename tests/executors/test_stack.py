"""Clients stacked and traced, without a compiler or a GPU: the numbers of lanes side by side."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from accord.core.methods import ALGORITHMS
from accord.core.model import Model
from accord.core.optim import SGD, Adam
from accord.core.plan import Plan
from accord.core.task import Part
from accord.core.view import Term, View
from accord.executors.gpu import compiler
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.buffers import Buffers, stacked
from accord.executors.gpu.graphs import CaptureError
from accord.executors.kernels import gpu
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model

MODELS = {"fedfusion": "mcmahan_cnn", "fedbn": "fedbr_cnn"}
APART = {"fedmmd", "fedmix", "pfedme"}  # whose parts say that they do not stack
ALONE = {"centralized"}  # one client has nobody to be stacked with


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """All graphs that would have been compiled."""
    graphs: list[Any] = []

    def keep(graph: Any) -> Any:
        graphs.append(graph)
        return graph

    monkeypatch.setattr(compiler, "compiled", keep)
    return graphs


def run(name: Any, compiled: bool, rounds: int = 2, kind: str = "mlp", **options: Any) -> TinyRun:
    model = options.pop("model", None) or tiny_model(kind, form={"compiled": compiled}, **options.pop("network", {}))
    options = {"sampler": Given([0, 2], [1, 3, 0]), "executor": Batched, **options}
    return TinyRun(name, model=model, **options).rounds(rounds)


def worst(a: TinyRun, b: TinyRun) -> float:
    """The largest difference, relative to the largest value of its tensor."""
    assert a.state.keys() == b.state.keys()
    return max(
        float((a.state[tree][leaf] - value).abs().max() / value.abs().max().clamp(min=1e-12))
        for tree, leaves in b.state.items()
        for leaf, value in leaves.items()
        if value.is_floating_point() and value.numel()
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_gives_the_same_numbers(name: str, traced: list[Any], float64: None) -> None:
    with warnings.catch_warnings(record=True) as caught:  # whatever cannot be stacked, or only client by client, warns
        warnings.simplefilter("always")
        kind = MODELS.get(name, "mlp")
        assert worst(run(name, True, kind=kind), run(name, False, kind=kind)) < 1e-9
    assert bool(traced) == (name not in APART | ALONE)
    expected = ["task 'train' cannot be compiled for all clients at once"] if name in APART else []
    assert [str(one.message)[: len(text)] for one, text in zip(caught, expected, strict=True)] == expected


@pytest.mark.parametrize("name", ["fedavg", "moon"])
def test_bf16_moves_the_model_as_plain_bf16_does(name: str, traced: list[Any]) -> None:
    """Both are rounded, by different products; MOON also asks models that all clients share."""
    moves = []
    for compiled in (True, False):
        model = tiny_model("mcmahan_cnn", form={"compiled": compiled, "bf16": True})
        start = {leaf: value.clone() for leaf, value in model.init()[0].items()}
        found = run(name, compiled, 1, model=model, lr=0.001, plan=Plan(steps=2, batch_size=4))
        moves.append({leaf: found.state["model"][leaf] - value for leaf, value in start.items()})
    assert traced
    apart = {leaf: torch.linalg.norm(moves[0][leaf] - move) for leaf, move in moves[1].items()}
    assert any(apart.values()), "one of them was not rounded at all"
    for leaf, move in moves[1].items():
        assert apart[leaf] < 0.2 * torch.linalg.norm(move), leaf


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9, weight_decay=0.01, nesterov=True), Adam()])
@pytest.mark.parametrize("kind", ["mcmahan_cnn", "fedbr_cnn"])
def test_convolutions_and_optimizers(optimizer: Any, kind: str, traced: list[Any], float64: None) -> None:
    plan = Plan(steps=2, batch_size=4)
    runs = [run("fedavg", compiled, 1, kind, optimizer=optimizer, plan=plan) for compiled in (True, False)]
    assert traced
    assert worst(*runs) < 1e-9


def test_torchs_own_tracer_understands_the_graph(monkeypatch: pytest.MonkeyPatch, float64: None) -> None:
    monkeypatch.setattr(compiler, "compiled", lambda graph: torch.compile(graph, backend="aot_eager", dynamic=False))
    assert worst(run("fedavg", True), run("fedavg", False)) < 1e-12


def test_fedufos_step_is_compiled_whole_and_reads_only_what_it_uses(traced: list[Any], float64: None) -> None:
    """Its discriminator learns after the last step, from images and features that are no concern of a step's."""
    codes = []
    for dynamic in (True, False):
        settings = {"dynamic": dynamic, "stage_one_rounds": 0}
        found = run("fedufo", True, 1, settings=settings)
        task: Any = found.algorithm.tasks["train"]
        assert task.moves_in_stack
        codes.append(traced[-1].code)
        assert all(node.users for node in traced[-1].graph.find_nodes(op="placeholder"))
        assert worst(found, run("fedufo", False, 1, settings=settings)) < 1e-9
    assert codes[0] == codes[1]  # who is sampled is not in it: it need not be compiled twice
    by_batch: Any = run("fedufo", True, 1, settings={"disc_train": "batch"}).algorithm.tasks["train"]
    assert not by_batch.moves_in_stack


def test_two_clients_make_a_stack_and_one_makes_none(traced: list[Any], float64: None) -> None:
    for cohort, graphs in (([1], 0), ([0, 2], 1)):
        runs = [run("fedavg", compiled, 1, sampler=Given(cohort)) for compiled in (True, False)]
        assert len(traced) == graphs
        assert worst(*runs) < 1e-12


def test_fewer_clients_than_lanes_need_no_other_graph(traced: list[Any], float64: None) -> None:
    options = {"sampler": Given([0, 1, 2], [1, 3], [3])}
    runs = [run("fedavg", compiled, 3, **options) for compiled in (True, False)]
    assert len(traced) == 1
    assert worst(*runs) < 1e-12


def test_spare_lanes_save_compiling_again(traced: list[Any], float64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the first client of a task goes alone, to see how much memory it takes."""

    def first_alone(self: Batched, task: str, waiting: int) -> int:
        return 1 if not self._lanes.get(task) else waiting

    monkeypatch.setattr(Batched, "_block_size", first_alone)
    options = {"sampler": Given([0, 1, 2, 3])}
    runs = [run("fedavg", compiled, 2, **options) for compiled in (True, False)]
    assert len(traced) == 1
    assert worst(*runs) < 1e-12


@dataclass(frozen=True)
class Looks(Part):
    """A loss that asks for a value, which cannot be traced."""

    def loss(self, view: View) -> Term:
        return view.whole(view.out.logits.sum() * float(view.batch.weight[0]))


def test_what_cannot_be_stacked_runs_side_by_side_and_says_so_once(traced: list[Any], float64: None) -> None:
    def start(compiled: bool) -> TinyRun:
        model = tiny_model(form={"compiled": compiled})
        made = TinyRun("fedavg", model=model, sampler=Given([0, 2], [1, 3]), executor=Batched)
        task: Any = made.algorithm.tasks["train"]
        executor: Any = made.executor
        executor.tasks = {"train": replace(task, parts=(*task.parts, Looks()))}
        return made

    with pytest.warns(RuntimeWarning, match="cannot be compiled for all clients at once") as caught:
        found = start(True).rounds(2)
    assert len(caught) == 1
    assert not traced
    assert worst(found, start(False).rounds(2)) == 0


def test_a_stack_that_cannot_be_recorded_becomes_lanes(monkeypatch: pytest.MonkeyPatch, float64: None) -> None:
    def capture(*_: Any) -> Any:
        raise CaptureError("operation not permitted when stream is capturing")

    monkeypatch.setattr(compiler.StackedStep, "__call__", capture)
    with pytest.warns(RuntimeWarning, match="side by side instead: operation not permitted") as caught:
        found = run("fedavg", True)
    assert len(caught) == 1
    assert worst(found, run("fedavg", False)) == 0


def test_a_compiler_that_fails_costs_only_speed(monkeypatch: pytest.MonkeyPatch, float64: None) -> None:
    def broken(graph: Any) -> Any:
        def fail(*_: Any) -> Any:
            raise RuntimeError("no kernel for that\nmore")

        return fail

    monkeypatch.setattr(compiler, "compiled", broken)
    with pytest.warns(RuntimeWarning, match="side by side instead: no kernel for that$") as caught:
        found = run("fedavg", True)
    assert len(caught) == 1
    assert worst(found, run("fedavg", False)) == 0


def test_dropout_repeats_and_differs_between_clients(traced: list[Any]) -> None:
    data = tiny_data(sizes=(4, 4))
    pool = data.train_pool
    pool.x[4:], pool.y[4:] = pool.x[:4], pool.y[:4]  # two clients with the same samples
    plan = Plan(steps=1, batch_size=4)
    network = {"dropout": 0.5}
    runs = [
        run("fedavg", True, 1, "mcmahan_cnn", data=data, plan=plan, network=network, sampler=Given([0, 1]))
        for _ in range(2)
    ]
    assert traced
    assert equal_trees(runs[0].state, runs[1].state)
    replies = runs[0].replies
    assert replies is not None
    first, second = (tree["head.weight"] for tree in replies.each("model"))
    assert not torch.equal(first, second)


def test_out_of_memory_is_not_taken_for_a_task_that_does_not_stack(
    traced: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = torch.vmap, []

    def too_much(*arguments: Any, **options: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise torch.OutOfMemoryError("no memory")
        return real(*arguments, **options)

    monkeypatch.setattr(torch, "vmap", too_much)
    found = run("fedavg", True, 1, sampler=Given([0, 1, 2, 3]))
    assert isinstance(found.executor, Batched)
    assert found.executor.limit == {"train": 2}  # half of four


def test_buffers_laid_together_keep_layout_values_and_names() -> None:
    made = []
    for number in (1.0, 2.0):
        one = torch.full((2, 3, 4, 4), number).contiguous(memory_format=torch.channels_last)
        fixed = Buffers(torch.device("cpu"))
        fixed.load({"a": {"w": one, "n": torch.arange(int(number) + 1.0)}, "same": one, "word": "x"})
        made.append(fixed)
    whole = stacked(made, 5)
    assert whole["word"] == "x"
    assert whole["same"] is whole["a"]["w"]
    assert whole["a"]["w"].shape == (2, 2, 3, 4, 4)
    assert whole["a"]["w"][1].is_contiguous(memory_format=torch.channels_last)
    assert whole["a"]["n"].shape == (2, 5)  # one row per example: room for the largest client
    for number, fixed in enumerate(made):
        assert fixed.value["a"]["w"].data_ptr() == whole["a"]["w"][number].data_ptr()
        assert torch.equal(fixed.like(number + 2)["a"]["n"], torch.arange(number + 2.0))
        assert float(fixed.value["same"].mean()) == number + 1


@pytest.mark.parametrize(("name", "models"), [("fedufo", 4), ("moon", 1), ("fedntd", 1), ("fedavg", 0)])
def test_a_block_is_asked_at_once_what_all_were_sent(
    name: str, models: int, traced: list[Any], float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedUFO's three priors and the received model; a client's previous model, in MOON, is its own affair."""
    asked: list[int] = []
    reference = Model.reference

    def noted(model: Model, params: Any, buffers: Any, x: Any, *more: Any) -> Any:
        asked.append(len(x))
        return reference(model, params, buffers, x, *more)

    monkeypatch.setattr(Model, "reference", noted)
    found = []
    for compiled in (True, False):
        asked.clear()
        settings = {"stage_one_rounds": 0, "dynamic": False} if name == "fedufo" else {}
        found.append(run(name, compiled, 1, sampler=Given([0, 1, 3]), settings=settings))
        everybody = sum(int(found[-1].data.sizes[who]) for who in (0, 1, 3))
        assert asked.count(everybody) == (models if compiled else 0)
    assert traced
    assert worst(*found) < 1e-9


def test_rows_of_layers_are_one_for_clients_of_a_stack_alone(
    traced: list[Any], float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedMMD, whose clients are trained side by side, would take another rounding of a feature for another feature."""
    wanted: list[bool] = []
    reference = Model.reference

    def noted(model: Model, *given: Any) -> Any:
        wanted.append(gpu._wanted.get())
        return reference(model, *given)

    monkeypatch.setattr(Model, "reference", noted)
    for name, compiled, expected in (("fedufo", True, True), ("fedmmd", True, False), ("fedufo", False, False)):
        wanted.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FedMMD says that it is not stacked
            run(name, compiled, 1, sampler=Given([0, 1, 3]))
        assert set(wanted) == {expected}
    assert not gpu._wanted.get()
