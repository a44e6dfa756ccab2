"""Fewer bytes up: the largest changes only, and eight bits for each.

Top-k: of every tree that the server sent down under the same name, the share `keep` of the values that changed most
travels, the tree taken as one vector. What was held back is added to the client's next change (error feedback), from
its ordinary memory: what left and what is kept are together what the client came to, in every round.

Eight bits: every tensor's values as multiples of one step, rounded by the client's own draws, without bias.

On the wire a thinned tree `model` is the tree `filter.model` with `places` (see gaps.py), `values` and, in eight bits,
`steps`, one for every tensor; `model` itself holds what must arrive exactly: whole numbers, and tensors the server did
not send. Trees that are no updates (sums of losses, running statistics) are not touched. An update that is not thinned
keeps its names and shapes, in eight bits with its steps in `filter.steps.model`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from accord.core.tensors import Tree, Trees, ordered_trees
from accord.errors import DataError
from accord.filters import gaps
from accord.filters.changes import OWN, STEPS, about, applied, base_of, changes, real
from accord.filters.quantisation import quantised, restored

KEPT = f"{OWN}kept."  # in a client's memory: what was held back
FEWEST = 16  # values for which eight bits and a step are less than they were


@dataclass(frozen=True)
class Compression:
    """How a client's answer is made small."""

    keep: float = 1.0
    bits: int = 32

    @property
    def on(self) -> bool:
        """Whether it does anything."""
        return self.keep < 1 or self.bits < 32

    def words(self) -> str:
        """For whoever wants to know what is left of an answer."""
        thin = f"the {100 * self.keep:g} % of the values that changed most" if self.keep < 1 else "all values"
        return f"{thin}, {self.bits} bits each" if self.bits < 32 else thin

    def packed(
        self,
        shared: Mapping[str, Tree],
        reply: Trees,
        memory: Mapping[str, Tree],
        rng: np.random.Generator,
        updates: Collection[str],
    ) -> tuple[Trees, Trees]:
        """What travels, and what the client has to remember of it; trees that are no `updates` travel as they are."""
        sent: Trees = {}
        kept: Trees = {}
        changed = changes(shared, reply)
        for name in sorted(reply):
            if name not in updates:
                sent[name] = reply[name]
                continue
            thin = self.thinned(shared, name, reply[name])
            sent[name] = {leaf: t for leaf, t in reply[name].items() if leaf not in thin}
            if thin:
                before = memory.get(f"{KEPT}{name}", {})
                due = {leaf: changed[name][leaf] + before.get(leaf, 0.0) for leaf in thin}
                like = {leaf: reply[name][leaf] for leaf in thin}
                parcel, rest = self._thinned(due, like, rng)
                parcel |= _which(thin, real(shared[name]))
                sent[f"{OWN}{name}"] = parcel
                kept[f"{KEPT}{name}"] = rest
            elif self.bits < 32:
                sent[name], steps = self._shortened(changed[name], reply[name], rng)
                if steps:
                    sent[f"{STEPS}{name}"] = steps
        return ordered_trees(sent), ordered_trees(kept)

    def unpacked(self, shared: Mapping[str, Tree], sent: Mapping[str, Tree]) -> Trees:
        """The reply as the method knows it; DataError for what no client with these settings sends."""
        reply: Trees = {}
        for name in sorted(name for name in sent if not name.startswith(OWN)):
            tree = dict(sent[name])
            if f"{STEPS}{name}" in sent:
                tree |= self._lengthened(shared, name, tree, sent[f"{STEPS}{name}"])
            if f"{OWN}{name}" in sent:
                tree |= self._widened(shared.get(name, {}), sent[f"{OWN}{name}"], name)
            reply[name] = tree
        lost = [name for name in sent if name.startswith(OWN) and about(name) not in reply]
        if lost:
            raise DataError(f"the answer holds {lost[0]!r} and no tree it belongs to")
        return ordered_trees(reply)

    def thinned(self, shared: Mapping[str, Tree], name: str, tree: Mapping[str, Tensor]) -> list[str]:
        """The tensors of a tree of which only the largest changes travel: those whose change is known as one."""
        if self.keep >= 1:
            return []
        return [leaf for leaf in real(tree) if base_of(shared, name, leaf, tree[leaf]) is not None]

    def count(self, values: int) -> int:
        """How many of so many values travel; one at least."""
        return min(values, max(1, math.ceil(self.keep * values - 1e-9)))

    def _thinned(self, due: Tree, like: Tree, rng: np.random.Generator) -> tuple[Tree, Tree]:
        """The parcel, and what is held back."""
        dtype = _common(like)
        vector = torch.cat([due[leaf].reshape(-1) for leaf in due])
        places = _largest(vector, self.count(len(vector)))
        chosen = vector[places].to(dtype)
        parcel: Tree = {"places": torch.from_numpy(gaps.encode(places.cpu().numpy(), len(vector)))}
        if self.bits < 32:
            parcel["values"], parcel["steps"] = _by_tensor(chosen, _cuts(due, places), rng)
        else:
            parcel["values"] = chosen.cpu()
        arrived = torch.zeros_like(vector)
        arrived[places] = _values(parcel, _cuts(due, places)).to(vector)
        held = iter(torch.split(vector - arrived, [t.numel() for t in due.values()]))
        return parcel, {leaf: next(held).view(t.shape).to(like[leaf].dtype) for leaf, t in due.items()}

    def _widened(self, base: Mapping[str, Tensor], parcel: Mapping[str, Tensor], name: str) -> Tree:
        """The tensors a parcel stands for."""
        wanted = {"places", "values", "steps"} if self.bits < 32 else {"places", "values"}
        bytes_ = [parcel[leaf].dtype == torch.uint8 for leaf in ("places", "tensors") if leaf in parcel]
        if set(parcel) - {"tensors"} != wanted or not all(bytes_) or any(t.dim() != 1 for t in parcel.values()):
            raise DataError(f"the answer's {OWN + name!r} is no parcel of kept values: it must hold {sorted(wanted)}")
        start = {leaf: base[leaf] for leaf in _present(real(base), parcel.get("tensors"))}
        length = sum(t.numel() for t in start.values())
        places = torch.from_numpy(gaps.decode(parcel["places"].cpu().numpy(), length))
        cuts = _cuts(start, places)
        fits = len(parcel["values"]) == len(places) and (self.bits == 32 or len(parcel["steps"]) == len(cuts))
        if not fits or (parcel["values"].dtype == torch.int8) != (self.bits < 32):
            raise DataError(f"the answer's {OWN + name!r} has {len(parcel['values'])} values for {len(places)} places")
        change = torch.zeros(length, dtype=torch.float64)
        change[places] = _values(parcel, cuts).double()
        pieces = iter(torch.split(change, [t.numel() for t in start.values()]))
        return {leaf: (t.double() + next(pieces).view(t.shape).to(t.device)).to(t.dtype) for leaf, t in start.items()}

    def _shortened(self, changed: Tree, tree: Tree, rng: np.random.Generator) -> tuple[Tree, Tree]:
        """Eight bits for every tensor that becomes smaller by it, and the steps of those."""
        sent, steps = dict(tree), {}
        for leaf in real(tree):
            if tree[leaf].numel() >= FEWEST:
                sent[leaf], steps[leaf] = quantised(changed[leaf].to(tree[leaf].dtype), rng)
        return sent, steps

    def _lengthened(self, shared: Mapping[str, Tree], name: str, tree: Tree, steps: Mapping[str, Tensor]) -> Tree:
        """Tensors of real numbers out of eight bits."""
        found: Tree = {}
        for leaf, step in steps.items():
            if leaf not in tree or tree[leaf].dtype != torch.int8 or step.dim() or not step.is_floating_point():
                raise DataError(f"the answer's {STEPS + name!r} has a step for {leaf!r}, which is not in eight bits")
            found[leaf] = restored(tree[leaf], step)
        return applied(shared, {name: found}, {name: {leaf: t.double() for leaf, t in found.items()}})[name]


def _which(sent: list[str], known: list[str]) -> Tree:
    """A bit for every tensor the server sent, where not all of them come back (some stay with the client)."""
    if sent == known:
        return {}
    return {"tensors": torch.from_numpy(np.packbits([leaf in sent for leaf in known]))}


def _present(known: list[str], bits: Tensor | None) -> list[str]:
    """The tensors that a parcel is about."""
    if bits is None:
        return known
    if len(bits) != (len(known) + 7) // 8:
        raise DataError(f"{len(bits)} bytes do not say which of {len(known)} tensors were sent")
    return [leaf for leaf, there in zip(known, np.unpackbits(bits.cpu().numpy()), strict=False) if there]


def _common(tree: Mapping[str, Tensor]) -> torch.dtype:
    """A type that holds all of them."""
    kinds = [t.dtype for t in tree.values()]
    found = kinds[0]
    for kind in kinds[1:]:
        found = torch.promote_types(found, kind)
    return found


def _largest(vector: Tensor, count: int) -> Tensor:
    """The places of the `count` values farthest from 0, rising."""
    return vector.abs().topk(count, sorted=False).indices.sort().values


def _cuts(tree: Mapping[str, Tensor], places: Tensor) -> list[int]:
    """How many of the places lie in each tensor."""
    ends = np.cumsum([t.numel() for t in tree.values()])
    found = np.searchsorted(places.cpu().numpy(), ends)
    return [int(count) for count in np.diff(found, prepend=0)]


def _by_tensor(values: Tensor, cuts: list[int], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Eight bits, with a step for every tensor."""
    pairs = [quantised(piece, rng) for piece in torch.split(values, cuts)]
    return torch.cat([steps for steps, _ in pairs]), torch.stack([step for _, step in pairs])


def _values(parcel: Mapping[str, Tensor], cuts: list[int]) -> Tensor:
    """The kept values as real numbers."""
    if "steps" not in parcel:
        return parcel["values"]
    pieces = torch.split(parcel["values"], cuts)
    return torch.cat([restored(piece, step) for piece, step in zip(pieces, parcel["steps"], strict=True)])
