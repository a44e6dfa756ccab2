"""Buffers that stay where they are: a recorded step reads and writes the addresses it was recorded with.

A `Buffers` value is nested dictionaries of tensors laid in such buffers; every client's values are copied in. What
differs between clients in its first dimension (outputs kept for each of a client's samples) gets room for the
largest client; steps read and write it through an index, so the rows beyond are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Spec = tuple[Any, ...]


class MisfitError(Exception):
    """A value that cannot be laid in buffers made for another client's."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All values of nested dictionaries, with where they lie."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}/{name}")
    else:
        yield path, value


def spec(value: Any, examples: int) -> Spec:
    """What two clients' values must share to be worked on by one recorded step.

    A first dimension equal to the client's number of examples may differ: where it does, it is one row per example.
    """
    return tuple(
        (path, leaf.dtype, *(("n", *leaf.shape[1:]) if leaf.dim() and len(leaf) == examples else leaf.shape))
        if isinstance(leaf, Tensor)
        else (path, repr(leaf))
        for path, leaf in leaves(value)
    )


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Many small copies as few kernels."""
    if targets:
        torch._foreach_copy_(list(targets), list(sources))


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies that may outlive the buffers."""
    made = [torch.empty_like(tensor) for tensor in tensors]
    copy_all(made, tensors)
    return made


class Buffers:
    """A nested value at fixed addresses."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.value: Any = None
        self.moved = 0  # counts the times an address changed: what was recorded before is void
        self._ragged: set[str] = set()  # where there is one row per example, as many as the largest client has

    def load(self, value: Any, most: int = 0) -> None:
        """Copy `value` in; `most` is the largest client's number of examples."""
        if self.value is None:
            self.value = self._adopt(value, {})
            return
        pairs: dict[int, tuple[Tensor, Tensor]] = {}
        self._match(self.value, value, most, pairs, "")
        copy_all([old for old, _ in pairs.values()], [new for _, new in pairs.values()])

    def like(self, examples: int) -> Any:
        """The buffers as a client with so many examples would have made them, without the rows beyond."""
        return self._cut(self.value, examples, "")

    def fresh(self) -> Any:
        """The same buffers in new dictionaries, for a step that may put other tensors in their place."""
        return _rebuilt(self.value)

    def settle(self, value: Any) -> None:
        """Bring back what a step has put in the place of a buffer."""
        mine, theirs = list(leaves(self.value)), list(leaves(value))
        if [path for path, _ in mine] != [path for path, _ in theirs]:
            raise MisfitError("a step adds to or takes from what it carries")
        buffers = {id(leaf) for _, leaf in mine}
        pairs = [(a, b) for (_, a), (_, b) in zip(mine, theirs, strict=True) if a is not b]
        tensors = [isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape for a, b in pairs]
        if any(not both and (isinstance(a, Tensor) or a != b) for both, (a, b) in zip(tensors, pairs, strict=True)):
            raise MisfitError("a step changes the shape of what it carries, or a value that is no tensor")
        # A buffer that took another's place is copied first: it may be overwritten itself.
        new = [(a, b.clone() if id(b) in buffers else b) for a, b in pairs if isinstance(a, Tensor)]
        for buffer, value in new:
            buffer.copy_(value)

    def _adopt(self, value: Any, known: dict[int, Tensor]) -> Any:
        if isinstance(value, dict):
            return {name: self._adopt(inner, known) for name, inner in value.items()}
        if not isinstance(value, Tensor):
            return value
        # The same tensor under two names stays one: what is trained is also listed as active.
        if id(value) not in known:
            known[id(value)] = value.detach().to(self.device, copy=True)
        return known[id(value)]

    def _match(self, mine: Any, new: Any, most: int, pairs: dict[int, tuple[Tensor, Tensor]], path: str) -> None:
        for name, value in new.items():
            here, old = f"{path}/{name}", mine[name]
            if isinstance(value, dict):
                self._match(old, value, most, pairs, here)
            elif isinstance(value, Tensor) and id(value) not in pairs:
                if old.shape != value.shape and here not in self._ragged:
                    self._ragged.add(here)
                    old = mine[name] = old.new_empty(most, *old.shape[1:])
                    self.moved += 1
                pairs[id(value)] = (old[: len(value)] if here in self._ragged else old, value)

    def _cut(self, mine: Any, examples: int, path: str) -> Any:
        if isinstance(mine, dict):
            return {name: self._cut(inner, examples, f"{path}/{name}") for name, inner in mine.items()}
        return mine[:examples] if path in self._ragged else mine


def _rebuilt(value: Any) -> Any:
    return {name: _rebuilt(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def stacked(fixed: Sequence[Buffers], most: int) -> Any:
    """The same nested value of all, in one tensor each, [K, ...]; from now on each has a slice of it."""
    known: dict[int, tuple[Tensor, list[Tensor]]] = {}

    def lay(values: list[Any], path: str) -> tuple[Any, list[Any]]:
        if isinstance(values[0], dict):
            laid = {name: lay([value[name] for value in values], f"{path}/{name}") for name in values[0]}
            whole = {name: both for name, (both, _) in laid.items()}
            return whole, [{name: slices[k] for name, (_, slices) in laid.items()} for k in range(len(values))]
        if not isinstance(values[0], Tensor):
            return values[0], values
        if id(values[0]) not in known:
            known[id(values[0])] = _room(values, most if path in ragged else 0)
        return known[id(values[0])]

    shapes = [dict(leaves(one.value)) for one in fixed]
    ragged = set().union(*(one._ragged for one in fixed))
    ragged |= {p for p, t in shapes[0].items() if isinstance(t, Tensor) and any(s[p].shape != t.shape for s in shapes)}
    whole, slices = lay([one.value for one in fixed], "")
    for one, value in zip(fixed, slices, strict=True):
        one.value, one._ragged = value, set(ragged)
        one.moved += 1
    return whole


def _room(values: Sequence[Tensor], rows: int) -> tuple[Tensor, list[Tensor]]:
    """One tensor with all of `values` in it, laid out as they are, and its slices; `rows` where they differ."""
    first = values[0]
    like = first.new_empty(rows, *first.shape[1:]) if rows else first
    whole = torch.empty_strided(
        (len(values), *like.shape), (like.numel(), *like.stride()), dtype=like.dtype, device=like.device
    )
    slices = list(whole.unbind())
    copy_all([mine[: len(value)] if rows else mine for mine, value in zip(slices, values, strict=True)], values)
    return whole, slices
