"""What a network is made of: every layer with its output shape and its number of parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from accord.core.model import Shape
from accord.models.shapes import evaluating


class Layer(NamedTuple):
    """One call of one layer. `output` is a sample's shape, empty for a layer that is never called."""

    name: str
    kind: str
    output: Shape
    parameters: int


def count_parameters(module: nn.Module, trainable_only: bool = False) -> int:
    """Numbers in all parameters; one used in two places counts once.

    >>> count_parameters(nn.Linear(3, 2))
    8
    """
    return sum(p.numel() for p in module.parameters() if p.requires_grad or not trainable_only)


def layers(network: nn.Module, input_shape: Shape) -> list[Layer]:
    """Layers in the order they finish, found by running a blank sample; together they hold all parameters."""
    first = next(network.parameters(), torch.zeros(0))
    counted: set[int] = set()
    rows: list[Layer] = []

    def own_parameters(part: nn.Module) -> int:
        fresh = [p for p in part.parameters(recurse=False) if id(p) not in counted]
        counted.update(id(p) for p in fresh)
        return sum(p.numel() for p in fresh)

    def watch(name: str, part: nn.Module) -> Any:
        def hook(_: nn.Module, __: tuple[Any, ...], out: Any) -> None:
            shape = tuple(out.shape[1:]) if isinstance(out, Tensor) else ()
            rows.append(Layer(name, type(part).__name__, shape, own_parameters(part)))

        return part.register_forward_hook(hook)

    # Inner modules are of interest only where they hold parameters of their own.
    parts = {
        name: part
        for name, part in network.named_modules()
        if not list(part.children()) or list(part.parameters(recurse=False))
    }
    hooks = [watch(name, part) for name, part in parts.items()]
    try:
        with evaluating(network):
            network(torch.zeros(1, *input_shape, dtype=first.dtype, device=first.device))
    finally:
        for hook in hooks:
            hook.remove()
    called = {layer.name for layer in rows}
    for name, part in parts.items():
        if name not in called and (unused := own_parameters(part)):
            rows.append(Layer(name, type(part).__name__, (), unused))
    return rows


def table(network: nn.Module, input_shape: Shape) -> str:
    """The layers as aligned text, with the total in the last line; layers that do nothing are left out."""
    shown = [layer for layer in layers(network, input_shape) if layer.kind != "Identity"]
    rows = [("layer", "kind", "output", "parameters")]
    rows += [
        (layer.name, layer.kind, " x ".join(map(str, layer.output)) or "-", f"{layer.parameters:,}") for layer in shown
    ]
    rows.append(("total", "", "", f"{count_parameters(network):,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{name:<{widths[0]}}  {kind:<{widths[1]}}  {output:<{widths[2]}}  {parameters:>{widths[3]}}"
        for name, kind, output, parameters in rows
    )
