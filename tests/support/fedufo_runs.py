"""Tiny runs of FedUFO, for its test files."""

from __future__ import annotations

from typing import Any

import torch

from accord.algorithms.fedufo import fedufo
from support.federation import TinyRun, tiny_data, tiny_model, tiny_setup

PAIRS = ([0, 2], [1, 3], [0, 1])
TRIPLES = ([0, 1, 3], [1, 2, 3], [0, 2, 3])
ALL = ("uad", "cgr", "cgl")


def tiny(factory: Any = fedufo, *, seed: int = 1, executor: Any = None, method: Any = None, **given: Any) -> TinyRun:
    """A run of the method; `model`, `data`, `plan`, `optimizer`, `sampler`, `rounds` go to the setup."""
    names = {"plan", "optimizer", "sampler", "rounds", "lr"}
    data = given.pop("data", None) or tiny_data(dtype=torch.get_default_dtype())
    model = given.pop("model", None) or tiny_model()
    shared = {name: given.pop(name) for name in names & given.keys()}
    algorithm = factory(tiny_setup(data, model, **shared), **given)
    extra = {} if executor is None else {"executor": executor}
    return TinyRun(method(algorithm) if method else algorithm, data=data, model=model, seed=seed, **extra, **shared)
