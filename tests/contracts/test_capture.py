"""A step can be recorded and replayed for other clients: it never looks at a value, and reads no data from outside.

What a recording cannot hold, caught on the CPU as the operations go by: `.item()` and everything that branches on a
tensor, shapes that depend on values (masks, `nonzero`), fresh tensors made from Python numbers (on a GPU a copy from
the host), and the client's data, which a recording would read where the first client's lay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from accord.client import Site
from accord.core.methods import ALGORITHMS
from accord.core.task import LocalTraining, Task
from accord.core.types import Batch, Carry, Job, Result
from accord.executors.sequential import Sequential
from support.federation import Given, TinyRun, tiny_model

MODELS = {"fedfusion": "mcmahan_cnn", "fedbn": "fedbr_cnn"}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "fedufo": [{}, {"disc_train": "batch", "stage_one_rounds": 0}, {"terms": "cgl"}],
    "fedbr": [{}, {"mixed": 2, "extra": ("mixup", "fedcm", "feddecorr", "fedntd")}],
    "fedmmd": [{}, {"kernel": "median"}],
    "fedfusion": [{}, {"operator": "multi"}],
    "fedrane": [{}, {"top_k": 2, "hops": 2, "similarity": "cosine"}, {"frozen_head": True}],
    "feddecorr": [{}, {"form": "fedbr"}],
    "fedmix": [{"means": 3}],
    "naivemix": [{"means": 3}],
    "compose": [{"parts": ("mixup", "feddecorr", "fedntd", "fedprox")}, {"parts": ("mixup", "vhl")}],
}
VALUES = {"_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique", "equal", "is_nonzero"}
CASES = [
    pytest.param(name, settings, id=f"{name}-{number}")
    for name in ALGORITHMS
    for number, settings in enumerate(SETTINGS.get(name, [{}]))
]


def places(value: Any) -> set[int]:
    """Where the tensors in a nested value lie."""
    if isinstance(value, Tensor):
        return {value.untyped_storage().data_ptr()}
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return {place for each in inside for place in places(each)}


class Recorder(TorchDispatchMode):
    """Notes the operations a recording cannot hold."""

    def __init__(self, data: set[int]) -> None:
        super().__init__()
        self.data = data - {0}  # where empty tensors lie
        self.found: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = op.overloadpacket.__name__
        masks = name in ("index", "index_put", "index_put_") and any(
            t is not None and t.dtype is torch.bool for t in args[1]
        )
        if name in VALUES or masks:
            self.found.append(name)
        for arg in args:
            if isinstance(arg, Tensor) and arg.untyped_storage().data_ptr() in self.data:
                self.found.append(f"{name} of the client's data")
        return op(*args, **(kwargs or {}))


class Recorded:
    """A task whose steps are watched."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def step(self, job: Job, carry: Carry, batch: Batch) -> Carry:
        with Recorder(places(job.data) - places(carry)) as recorder:  # what `begin` put into the carry may be read
            carry = self.task.step(job, carry, batch)
        assert not recorder.found, f"a step cannot be recorded: {sorted(set(recorder.found))}"
        return carry

    def finish(self, job: Job, carry: Carry) -> Result:
        if not isinstance(self.task, LocalTraining) or not self.task.closes_apart:
            return self.task.finish(job, carry)
        with Recorder(places(job.data) - places(carry)) as recorder:
            self.task.close(job, carry)
        assert not recorder.found, f"what follows the last step cannot be recorded: {sorted(set(recorder.found))}"
        return self.task.answer(job, carry)


class Watched(Sequential):
    """Runs watched tasks."""

    def __init__(self, site: Site, tasks: Mapping[str, Task]) -> None:
        super().__init__(site, {name: Recorded(task) for name, task in tasks.items()})


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_steps_can_be_recorded(name: str, settings: dict[str, Any]) -> None:
    model = tiny_model(MODELS.get(name, "mlp"))
    TinyRun(name, settings, model=model, executor=Watched, sampler=Given([0, 2], [1, 3])).rounds(2)


def test_what_cannot_be_recorded_is_noticed() -> None:
    x = torch.arange(4.0)
    with Recorder(set()) as recorder:
        x.sum().item()
        x[x > 1]
        torch.tensor(3.0)
    assert set(recorder.found) >= {"_local_scalar_dense", "lift_fresh", "index"}
    with Recorder(places([x])) as recorder:
        x[1:].sum()
    assert recorder.found
