"""Weights from a user's safetensors file under torchvision's names, into our residual networks: whole, or not at all.

    from torchvision.models import resnet50, ResNet50_Weights; from safetensors.torch import save_file
    save_file(resnet50(weights=ResNet50_Weights.IMAGENET1K_V1).state_dict(), "resnet50.safetensors")

Everything below the head must be there in its shape, and nothing else may be. The head is taken where it has as many
classes, and stays as drawn where it has others, which is said.
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from accord.errors import DataError

SHOWN = 5
HEAD = ("head.weight", "head.bias")
_RULES = (
    (r"conv1\.(.*)", r"maps.conv.\1"),
    (r"bn1\.(.*)", r"maps.norm.\1"),
    (r"fc\.(.*)", r"head.\1"),
    (r"layer(\d)\.(\d+)\.conv(\d)\.(.*)", r"maps.stage\1.\2.residual.conv\3.\4"),
    (r"layer(\d)\.(\d+)\.bn(\d)\.(.*)", r"maps.stage\1.\2.residual.norm\3.\4"),
    (r"layer(\d)\.(\d+)\.downsample\.(.*)", r"maps.stage\1.\2.shortcut.\3"),
)


def ours(name: str) -> str:
    """Our name of a tensor of torchvision's ResNets; a name that is none of theirs stays.

    >>> ours("layer3.0.downsample.1.running_mean"), ours("bn1.bias")
    ('maps.stage3.0.shortcut.1.running_mean', 'maps.norm.bias')
    """
    for pattern, replacement in _RULES:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, replacement, name)
    return name


def load_weights(network: nn.Module, path: str | os.PathLike[str]) -> None:
    """Fill the network; DataError names what is missing, left over or of another shape."""
    file = Path(path).expanduser()
    try:
        given = {ours(name): tensor for name, tensor in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise DataError(f"model.weights: {file} cannot be read as a safetensors file: {error}") from error
    wanted = {name: t for name, t in network.state_dict().items() if not name.endswith("num_batches_tracked")}
    given = {name: t for name, t in given.items() if not name.endswith("num_batches_tracked")}
    problems = _problems(wanted, given)
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise DataError(
            f"model.weights: {file} does not fit, and nothing was taken from it: {'; '.join(problems[:SHOWN])}{more}. "
            "It must hold torchvision's network of this name; batch norm's weights want model.norm = batch"
        )
    kept = [name for name in HEAD if name not in given or given[name].shape != wanted[name].shape]
    if kept:
        warnings.warn(
            f"{file.name}: the head stays as it was drawn, as the file's is for other classes "
            f"({_shape(given.get(HEAD[0]))} instead of {_shape(wanted[HEAD[0]])}); all other "
            f"{len(wanted) - len(HEAD)} tensors were taken",
            stacklevel=2,
        )
    network.load_state_dict({name: t for name, t in given.items() if not (kept and name in HEAD)}, strict=False)


def _problems(wanted: dict[str, Tensor], given: dict[str, Tensor]) -> list[str]:
    body = [name for name in wanted if name not in HEAD]
    found = [f"{name} is missing" for name in body if name not in given]
    found += [f"{name} is none of the network's" for name in given if name not in wanted]
    for name in body:
        if name in given and given[name].shape != wanted[name].shape:
            found.append(f"{name} is {_shape(given[name])}, not {_shape(wanted[name])}")
        elif name in given and not bool(torch.isfinite(given[name]).all()):
            found.append(f"{name} holds values that are not finite")
    return found


def _shape(tensor: Tensor | None) -> str:
    return "none" if tensor is None else " x ".join(map(str, tensor.shape)) or "a number"
