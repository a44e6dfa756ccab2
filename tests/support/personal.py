"""What the tests of personalised methods share: a tiny run of a factory, and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from accord.core.model import Model
from accord.core.plan import Plan
from accord.executors.processes import Processes
from accord.models import adapt
from support.federation import SIZES, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup

COHORTS = ([0, 2], [1, 3], [0, 1])
Params = dict[str, Tensor]


def tiny(factory: Any, options: dict[str, Any] | None = None, *, model: Any = None, **setup: Any) -> TinyRun:
    """A run of the method a factory makes."""
    data = tiny_data(dtype=torch.get_default_dtype())
    model = model or tiny_model()
    kinds = {name: setup.pop(name) for name in ("executor", "with_test", "seed") if name in setup}
    built = factory(tiny_setup(data, model, **setup), **(options or {}))
    return TinyRun(built, data=data, model=model, **kinds, **setup)


def near(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], tolerance: float = 1e-9) -> bool:
    """The same names, and the same values up to rounding."""
    return found.keys() == wanted.keys() and all(
        torch.allclose(found[name], wanted[name], rtol=tolerance, atol=tolerance) for name in wanted
    )


def by_samples(models: list[Params], cohort: list[int], uniform: bool = False) -> Params:
    """sum_k a_k w_k."""
    sizes = [1 if uniform else SIZES[k] for k in cohort]
    return {n: sum(a / sum(sizes) * m[n] for a, m in zip(sizes, models, strict=True)) for n in models[0]}


def same_in_processes(factory: Any, options: dict[str, Any] | None = None, **setup: Any) -> bool:
    """Whether two worker processes give the same bits as one, in the server's state and all clients' memory."""
    one = tiny(factory, options, **setup).rounds(2)
    many = tiny(factory, options, executor=partial(Processes, workers=2), **setup)
    try:
        many.rounds(2)
        return equal_trees(one.state, many.state) and all(
            equal_trees(one.store.get(k) or {}, many.store.get(k) or {}) for k in one.store.clients()
        )
    finally:
        many.close()


def norm_model() -> Model:
    """A perceptron with batch norm, in which every model has running statistics of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = (nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
        return Model(adapt(nn.Sequential(*layers), head="4"))


FILLED = Plan(epochs=2, batch_size=4, last_batch="fill")  # batch norm wants more than one sample
