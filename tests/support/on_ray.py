"""Runs over Ray for tests: one cluster of this machine for a module, whose actors go from run to run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from accord.client import Sums
from accord.core.sums import averaged_trees
from accord.core.task import Part
from accord.executors.ray import OnRay
from accord.parts.averaging import averaging
from support.federation import TinyRun, tiny_data, tiny_model, tiny_setup


class Complete(OnRay):
    """Waits for all its actors before it deals out, so that a short run has as many as it asked for."""

    def _manned(self, request: Any) -> Any:
        import ray

        crew = super()._manned(request)
        ray.wait([member.ready for member in crew.members], num_returns=len(crew.members), timeout=120)
        return crew


def over_ray(*parts: Part, workers: int = 2, **options: Any) -> TinyRun:
    """FedAvg with these parts on the tiny federation."""
    data = options.pop("data", None) or tiny_data(dtype=torch.get_default_dtype())
    model = options.pop("model", None) or tiny_model()
    options.setdefault("executor", partial(Complete, workers=workers))
    return TinyRun(averaging(tiny_setup(data, model), *parts), data=data, model=model, **options)


def summed(run: TinyRun, block: int = 3) -> TinyRun:
    """The run with partial sums, as `partial_sums = 3` would have it."""
    run.federation.__dict__["sums"] = Sums(averaged_trees(run.algorithm), block)
    return run


@contextmanager
def closing(run: TinyRun) -> Iterator[TinyRun]:
    """The run, whose executor is closed at the end."""
    try:
        yield run
    finally:
        run.close()
