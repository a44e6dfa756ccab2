"""A tiny run of a method given by its factory."""

from __future__ import annotations

from typing import Any

import torch

from support.federation import TinyRun, tiny_data, tiny_model, tiny_setup


def tiny(factory: Any, options: dict[str, Any] | None = None, executor: Any = None, **setup: Any) -> TinyRun:
    data, model = tiny_data(dtype=torch.get_default_dtype()), tiny_model()
    built = factory(tiny_setup(data, model, **setup), **(options or {}))
    kinds = {"executor": executor} if executor else {}
    return TinyRun(built, data=data, model=model, **kinds, **setup)
