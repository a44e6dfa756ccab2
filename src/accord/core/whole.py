"""A network that leaves: with what a method puts around it, its values under the names its owner gave them.

Some methods predict with more than the network: a second one whose maps are fused in, message passing before the head,
another head. What they put around it is a `Whole`, what they put in the place of a layer is `Exchanged`; both say of
what kind they are and how they are set, so that they can be put around the same network again elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from accord.core.tensors import Tree
from accord.errors import DataError

OWN = "accord:"  # begins the names of values that are not the network's; no attribute can be called so
Settings = dict[str, Any]


class Whole(nn.Module):
    """All of a prediction: `forward` gives what the method is judged by."""

    kind: ClassVar[str]
    together: ClassVar[bool] = False  # whether an answer depends on the samples that are shown with it

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def settings(self) -> Settings:
        """What it takes to put it around another network; plain values."""
        return {}


class Exchanged(nn.Module):
    """A layer that stands in the place of one of the network's own."""

    kind: ClassVar[str]

    def settings(self) -> Settings:
        """What it takes to put another one there; plain values."""
        return {}


def as_given(network: nn.Module) -> nn.Module:
    """The network its owner knows, where a method trains a wrapper around it: same values, same answers."""
    back = getattr(network, "as_given", None)
    return back() if callable(back) else network


def bare(module: nn.Module) -> nn.Module:
    """The network alone."""
    return bare(module.network) if isinstance(module, Whole) else module


def own_prefix(network: nn.Module) -> str:
    """What stands before the names its owner gave, if the network is in a wrapper of ours."""
    return str(getattr(network, "own_prefix", ""))


def around(module: nn.Module) -> list[Settings]:
    """What is not the network's own, in the order in which it is put there."""
    network = bare(module)
    prefix = own_prefix(network)
    found = [
        {"kind": layer.kind, "at": name.removeprefix(prefix), **layer.settings()}
        for name, layer in network.named_modules()
        if isinstance(layer, Exchanged)
    ]
    outside: list[Settings] = []
    while isinstance(module, Whole):
        outside.append({"kind": module.kind, **module.settings()})
        module = module.network
    return [*found, *reversed(outside)]


def named_values(module: nn.Module) -> Tree:
    """All values by name: the network's as its own `state_dict` calls them, and what is around it.

    They are the module's own tensors. What a layer keeps beside tensors (`get_extra_state`) is not among them.
    """
    state = module.state_dict(keep_vars=True)
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if not isinstance(module, Whole):
        prefix = own_prefix(module)
        return {name.removeprefix(prefix): value for name, value in tensors.items()}
    others = {f"{OWN}{name}": value for name, value in tensors.items() if not name.startswith("network.")}
    return {**named_values(module.network), **others}


def fill(module: nn.Module, values: Mapping[str, Tensor], source: str) -> None:
    """Put values in their places; DataError for others than the module has. `source` is what an error names."""
    places = named_values(module)
    for name in sorted(places.keys() ^ values.keys()):
        there = "which this network does not have" if name in values else "missing in it"
        raise DataError(f"{source} does not fit the network: {name[:200]!r} is {there}")
    with torch.no_grad():
        for name, place in places.items():
            value = values[name]
            if value.shape != place.shape or value.dtype != place.dtype:
                raise DataError(
                    f"{source} does not fit the network: {name[:200]!r} is {value.dtype} {tuple(value.shape)}, and the "
                    f"network wants {place.dtype} {tuple(place.shape)}"
                )
            if value.is_floating_point() and not _sound(value, isinstance(place, nn.Parameter)):
                raise DataError(f"{source}: {name[:200]!r} holds values that are infinite or no numbers")
            place.copy_(value)


def _sound(value: Tensor, weight: bool) -> bool:
    """Weights are finite; a buffer may hold infinities, as masks do."""
    return not bool((~torch.isfinite(value) if weight else torch.isnan(value)).any())
