"""On a CUDA device: clients side by side in one graph give what one after another gives. Run by `make test-gpu`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from accord.core.methods import ALGORITHMS
from accord.core.plan import Plan
from accord.executors.gpu.batched import Batched
from accord.executors.gpu.graphs import CaptureError, Recorder
from accord.executors.gpu.precision import numerics
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model

pytestmark = pytest.mark.gpu
MODELS = {"fedfusion": "mcmahan_cnn", "fedbn": "fedbr_cnn"}


def start(name: str, batched: bool, **options: Any) -> TinyRun:
    model = tiny_model(MODELS.get(name, "mlp"), device="cuda")
    extra: dict[str, Any] = {"executor": Batched} if batched else {}
    return TinyRun(name, model=model, sampler=Given([0, 2], [1, 3], [0, 1, 2]), with_test=True, **extra, **options)


def all_close(a: TinyRun, b: TinyRun, rtol: float) -> list[str]:
    """Names of the tensors of state and memory that differ by more than `rtol` of their largest value."""
    mine = {"": a.state} | {str(k): a.store.get(k) or {} for k in a.store.clients()}
    theirs = {"": b.state} | {str(k): b.store.get(k) or {} for k in b.store.clients()}
    assert mine.keys() == theirs.keys()
    return [
        f"{who}/{tree}/{leaf}"
        for who, trees in theirs.items()
        for tree, leaves in trees.items()
        for leaf, value in leaves.items()
        if value.numel()
        and (mine[who][tree][leaf].double() - value.double()).abs().max() > rtol * value.double().abs().max() + 1e-12
    ]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_is_steps_and_agrees_in_double_precision(name: str, float64: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # falling back to one by one warns
        whole = start(name, batched=True).rounds(4)
    assert not all_close(whole, start(name, batched=False).rounds(4), 1e-7)


@pytest.mark.parametrize("form", [{}, {"compiled": True}])
@pytest.mark.filterwarnings("ignore", "error:task .* cannot be")  # torch's compiler warns of its own choices
def test_what_follows_the_last_step_is_recorded_for_clients_of_one_size(form: dict[str, bool], float64: None) -> None:
    """FedUFO's discriminator learns then. In each stage every client closes by itself once, then they are recorded,
    then replayed."""
    data = tiny_data(sizes=(9, 9, 9, 9), dtype=torch.float64)
    settings = {"stage_one_rounds": 3}
    runs = [
        TinyRun("fedufo", settings, data=data, model=tiny_model(device="cuda", form=given), rounds=6, **extra).rounds(6)
        for given, extra in ((form, {"executor": Batched}), ({}, {}))
    ]
    executor: Any = runs[0].executor
    assert any(lanes._closes for lanes in executor._lanes["train"].values()), "nothing was recorded"
    assert not all_close(*runs, 1e-7)


# Kernels of variance 1e-6 (fedmmd) turn single precision's rounding into other gradients; its double is compared above.
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "fedmmd"])
def test_one_round_in_single_precision(name: str) -> None:
    with numerics("fp32"):
        side_by_side, alone = start(name, batched=True).rounds(1), start(name, batched=False).rounds(1)
    assert not all_close(side_by_side, alone, 1e-4)


def test_fedmmd_holds_equal_models_to_nothing_with_tf32() -> None:
    """In a round's first step both streams are one model; what tf32 rounds away must be the same in both."""
    one = Plan(steps=1, batch_size=4)
    data = tiny_data(shape=(1, 28, 28))

    def run(name: str, settings: dict[str, Any]) -> TinyRun:
        model = tiny_model("mcmahan_cnn", shape=(1, 28, 28), device="cuda")
        return TinyRun(name, settings, model=model, data=data, plan=one, executor=Batched).rounds(2)

    with numerics("tf32"):
        assert equal_trees(run("fedmmd", {"lam": 10.0}).state, run("fedavg", {"weight": "uniform"}).state)


def test_a_run_repeats_and_resumes_to_the_bit(tmp_path: Path) -> None:
    with numerics("fp32"):
        whole = start("scaffold", batched=True, folder=tmp_path / "a").rounds(4)
        first = start("scaffold", batched=True, folder=tmp_path / "b").rounds(2)
        second = start("scaffold", batched=True, folder=tmp_path / "b")
        second.state, second.round, second.store = first.state, first.round, first.store
        second.rounds(2)
    assert equal_trees(whole.state, second.state)


def test_dropout_repeats_to_the_bit() -> None:
    def run() -> TinyRun:
        model = tiny_model("mcmahan_cnn", shape=(1, 28, 28), device="cuda", dropout=0.5)
        data = tiny_data(shape=(1, 28, 28))
        return TinyRun("fedavg", model=model, data=data, executor=Batched).rounds(3)

    with numerics("fp32"):
        assert equal_trees(run().state, run().state)


def test_dropout_draws_after_a_recording_that_failed() -> None:
    device = torch.device("cuda")
    recorder = Recorder(device)
    ones, masked = torch.ones(1000, device=device), torch.empty(1000, device=device)

    def asks() -> None:
        if float(F.dropout(ones).sum()) > 0:  # a value is not there while work is recorded
            masked.zero_()

    with pytest.raises(CaptureError):
        recorder.record(asks)
    assert recorder.failures == 1
    drawn = []
    for _ in range(2):
        torch.cuda.manual_seed(3)
        drawn.append(F.dropout(ones))
    assert torch.equal(*drawn)

    def draws() -> None:
        masked.copy_(F.dropout(ones))

    recording = recorder.record(draws)
    for seed in (3, 4, 3):
        torch.cuda.manual_seed(seed)
        recording.replay()
        drawn.append(masked.clone())
    assert torch.equal(drawn[2], drawn[4])
    assert not torch.equal(drawn[2], drawn[3])


def test_nothing_waits_for_the_device_between_steps() -> None:
    plan = Plan(epochs=4, batch_size=4)
    run = TinyRun("fedavg", model=tiny_model(device="cuda"), executor=Batched, plan=plan)
    run.rounds(2)
    executor: Any = run.executor
    (lanes,) = executor._lanes["train"].values()
    record = next(iter(lanes._steps.values()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            record.replay()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_step_that_looks_at_a_value_falls_back_with_one_warning() -> None:
    run = TinyRun("fedavg", model=tiny_model(device="cuda"), executor=Batched)
    task: Any = run.algorithm.tasks["train"]
    real = type(task).step

    def peeking(self: Any, job: Any, carry: Any, batch: Any) -> Any:
        carry = real(self, job, carry, batch)
        float(carry["metrics"]["loss"])
        return carry

    patched = type("Peeking", (type(task),), {"step": peeking})
    peeker = patched(**{f: getattr(task, f) for f in task.__dataclass_fields__})
    executor: Any = run.executor
    executor.tasks = {"train": peeker}
    with pytest.warns(RuntimeWarning, match="cannot be recorded") as caught:
        run.rounds(2)
    assert len([w for w in caught if "recorded" in str(w.message)]) == 1
    plain = TinyRun("fedavg", model=tiny_model(device="cuda")).rounds(2)
    assert not all_close(run, plain, 1e-5)


def test_too_little_memory_halves_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny_data(sizes=(8,) * 6)
    run = TinyRun("fedavg", model=tiny_model(device="cuda"), executor=Batched, data=data)
    executor: Any = run.executor
    executor.limit["train"] = 6
    real = executor._block
    sizes: list[int] = []

    def short_of_memory(request: Any, task: Any, shared: Any, block: Any) -> Any:
        sizes.append(len(block))
        if len(block) > 2:
            raise torch.cuda.OutOfMemoryError("no room")
        return real(request, task, shared, block)

    monkeypatch.setattr(executor, "_block", short_of_memory)
    run.rounds(1)
    assert sizes[0] == 6
    assert max(sizes[2:]) <= 2
    plain = TinyRun("fedavg", model=tiny_model(device="cuda"), data=data).rounds(1)
    assert not all_close(run, plain, 1e-5)
