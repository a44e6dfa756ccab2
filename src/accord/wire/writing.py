"""JSON as we write it: every number in it is one, and what was none is named."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

NOT_FINITE = "not_finite"

Record = dict[str, Any]


def finite_only(record: Mapping[str, Any]) -> Record:
    """The record with null for NaN and infinities; their names are listed in it under `not_finite`.

    >>> finite_only({"round": 3, "test_loss": float("nan"), "clients": {"best": float("inf")}})
    {'round': 3, 'test_loss': None, 'clients': {'best': None}, 'not_finite': ['test_loss', 'clients.best']}
    """
    names: list[str] = []
    cleaned: Record = {str(name): _cleaned(value, str(name), names) for name, value in record.items()}
    return cleaned | {NOT_FINITE: names} if names else cleaned


def as_text(record: Mapping[str, Any], indent: int | None = None) -> str:
    """The record as JSON that every reader takes."""
    return json.dumps(finite_only(record), indent=indent, allow_nan=False)


def digest(record: Mapping[str, Any]) -> str:
    """The same for two records exactly when they hold the same, in whatever order."""
    return hashlib.sha256(json.dumps(record, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _cleaned(value: Any, name: str, names: list[str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        names.append(name)
        return None
    if isinstance(value, Mapping):
        return {str(key): _cleaned(inner, f"{name}.{key}", names) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(inner, f"{name}.{place}", names) for place, inner in enumerate(value)]
    if isinstance(value, str):  # an error's text may hold half characters, which no reader takes
        return value.encode("utf-8", "backslashreplace").decode()
    return value
