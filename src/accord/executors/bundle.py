"""A client's messages as one set of trees: what it is given, and what it came to."""

from __future__ import annotations

from accord.client import Work
from accord.core.tensors import Trees
from accord.core.types import Result


def given(work: Work) -> Trees:
    """All tensors addressed to one client."""
    return {**_spread("private", work.private), **_spread("memory", work.memory or {})}


def work_of(header: Work, trees: Trees) -> Work:
    """A client's share of a request again; the header has no tensors, and a memory unless the client is new."""
    memory = _gather("memory", trees) if header.memory is not None else None
    return Work(header.client, _gather("private", trees), memory)


def header_of(work: Work) -> Work:
    """The same client without its tensors."""
    return Work(work.client, {}, None if work.memory is None else {})


def found(result: Result) -> Trees:
    """All tensors of a client's answer."""
    return {**_spread("reply", result.reply), **_spread("memory", result.memory), "metrics": result.metrics}


def result_of(trees: Trees) -> Result:
    """The answer again."""
    return Result(_gather("reply", trees), _gather("memory", trees), trees["metrics"])


def _spread(prefix: str, trees: Trees) -> Trees:
    return {f"{prefix}:{name}": tree for name, tree in trees.items()}


def _gather(prefix: str, trees: Trees) -> Trees:
    start = len(prefix) + 1
    return {name[start:]: tree for name, tree in trees.items() if name.startswith(prefix + ":")}
