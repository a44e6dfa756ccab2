"""An actor's work, in this process and without Ray: the same answers as `sequential`, in parcels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from accord.client import Request, Sums, Work
from accord.core.task import Part
from accord.executors import bundle
from accord.executors.ray.parcel import packed, taken_out, unpacked
from accord.executors.ray.trainer import Numerics, Trainer
from accord.executors.sequential import Sequential
from accord.parts.averaging import averaging
from support.federation import SIZES, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup


@dataclass(frozen=True)
class Complaining(Part):
    """Client 2 warns of something, and of something else that is not for the run to tell; client 3 fails."""

    def begin(self, model: Any, job: Any) -> dict[str, Any]:
        if int(job.info["client"]) == 2:
            warnings.warn("too hot", RuntimeWarning, stacklevel=1)
            warnings.warn("too old", FutureWarning, stacklevel=1)
        if int(job.info["client"]) == 3:
            raise ValueError("broken")
        return {}


@pytest.fixture
def numerics() -> Iterator[Numerics]:
    before = Numerics.here()
    yield before
    before.set()


def works(run: TinyRun, *clients: int) -> list[tuple[Work, Any]]:
    all_of_it = [Work(client, {"note": {"n": torch.tensor([client])}}, None) for client in clients]
    return [(bundle.header_of(work), packed(bundle.given(work))) for work in all_of_it]


def test_clients_answer_as_they_would_here(numerics: Numerics) -> None:
    run = TinyRun("scaffold")
    message = run.algorithm.message(run.state)
    request = Request("train", 0, 0.1, message, [Work(client, {}, None) for client in (1, 3)])
    here = {answer.client: answer for answer in Sequential(run.federation.site(), run.algorithm.tasks).run(request)}
    trainer = Trainer()
    trainer.settle(run.federation.site(), run.algorithm.tasks, numerics)
    found = trainer.run(Request("train", 0, 0.1, {}, ()), packed(message), works(run, 1, 3))
    assert found.means is None
    assert found.warned == []
    assert len(found.outcomes) == 2
    for answer, parcel in found.outcomes:
        assert answer.result is None, "its tensors come apart"
        assert parcel is not None
        result, expected = bundle.result_of(taken_out(parcel, torch.device("cpu"))), here[answer.client].result
        assert expected is not None
        assert equal_trees(result.reply, expected.reply)
        assert equal_trees(result.memory, expected.memory)


def test_warnings_and_failures_are_told(numerics: Numerics) -> None:
    data, model = tiny_data(), tiny_model()
    run = TinyRun(averaging(tiny_setup(data, model), Complaining()), data=data, model=model)
    trainer = Trainer()
    trainer.settle(run.federation.site(), run.algorithm.tasks, numerics)
    message = packed(run.algorithm.message(run.state))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = trainer.run(Request("train", 0, 0.1, {}, ()), message, works(run, 2, 3))
        again = trainer.run(Request("train", 0, 0.1, {}, ()), message, works(run, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        loud = trainer.run(Request("train", 0, 0.1, {}, ()), message, works(run, 2))
    assert found.warned == again.warned == loud.warned == ["too hot"], "every time, whoever has heard it"
    by_client = {answer.client: (answer, parcel) for answer, parcel in found.outcomes}
    assert by_client[2][1] is not None
    failed, parcel = by_client[3]
    assert parcel is None
    assert "broken" in failed.error


def test_of_a_block_the_means_come_where_they_will_do(numerics: Numerics) -> None:
    run = TinyRun("fedavg")
    trainer = Trainer()
    trainer.settle(run.federation.site(), run.algorithm.tasks, numerics)
    message = packed(run.algorithm.message(run.state))
    apart = trainer.run(Request("train", 0, 0.1, {}, ()), message, works(run, 0, 2))
    header = Request("train", 0, 0.1, {}, (), Sums({"model": "examples"}, 2))
    found = trainer.run(header, message, works(run, 0, 2))
    assert found.clients == (0, 2)
    assert found.means is not None
    means = unpacked(found.means)["model"]
    sent = [bundle.result_of(unpacked(parcel)).reply["model"] for _, parcel in apart.outcomes if parcel is not None]
    total = SIZES[0] + SIZES[2]
    for name, value in means.items():
        expected = (SIZES[0] * sent[0][name].double() + SIZES[2] * sent[1][name].double()) / total
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
    for _, parcel in found.outcomes:
        assert parcel is not None
        assert "reply:model" not in unpacked(parcel)


def test_settled_anew_it_serves_the_new_clients(numerics: Numerics) -> None:
    """And computes as whoever started the run does."""
    closed: list[bool] = []
    trainer, run = Trainer(), TinyRun("fedavg")
    trainer.settle(run.federation.site(), run.algorithm.tasks, numerics)
    assert trainer.sizes.tolist() == list(SIZES)
    assert trainer.executor is not None
    trainer.executor.close = lambda: closed.append(True)  # type: ignore[method-assign]
    trainer.settle(run.federation.site(), run.algorithm.tasks, Numerics(torch.float64, True, True))
    assert closed == [True]
    assert Numerics.here() == Numerics(torch.float64, True, True)
    assert torch.backends.cuda.matmul.allow_tf32
    other = TinyRun("fedavg", data=tiny_data(sizes=(3, 8), dtype=torch.float64))
    trainer.settle(other.federation.site(), other.algorithm.tasks, numerics)
    assert trainer.sizes.tolist() == [3, 8], "means are weighted by these"


def test_a_new_client_has_no_memory_and_one_that_forgot_has_an_empty_one() -> None:
    for memory in (None, {}, {"own": {"w": torch.ones(1)}}):
        work = Work(4, {"note": {"n": torch.ones(2)}}, memory)
        again = bundle.work_of(bundle.header_of(work), bundle.given(work))
        assert again.client == 4
        assert equal_trees(again.private, work.private)
        assert (again.memory is None) == (memory is None)
        assert equal_trees(again.memory or {}, memory or {})
