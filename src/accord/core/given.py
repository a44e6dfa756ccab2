"""A network as it was given: which of its values stay as its owner set them, and what cannot be used at all.

A parameter with `requires_grad=False` is never trained, and a layer in evaluation mode stays in it. A network that is
in evaluation mode as a whole, as loading a pretrained one often leaves it, says nothing: all of it trains.
"""

from __future__ import annotations

import copy

from torch import Tensor, jit, nn
from torch.nn.parameter import is_lazy

from accord.errors import ConfigError


def check_usable(network: nn.Module) -> None:
    """Refuse what cannot be trained as a function of its parameters."""
    check_ordinary(network)
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        problem = _unfit(tensor)
        if problem:
            raise ConfigError(f"{name!r} of the network {name_of(network)} {problem}")
    if all(not parameter.requires_grad for parameter in network.parameters()):
        raise ConfigError(
            f"the network {name_of(network)} has nothing to train: it has no parameters (quantised layers have none), "
            "or all of them are frozen; set requires_grad = True for those that are to be trained"
        )


def check_ordinary(network: nn.Module) -> None:
    """Refuse modules that Python does not run: their layers cannot be watched, nor their parameters exchanged."""
    for name, module in network.named_modules():
        if isinstance(module, jit.ScriptModule):
            raise ConfigError(
                f"{_called(name, network)} is compiled by torch.jit, which does not let its parameters be exchanged: "
                "give the ordinary module it was made from"
            )


def name_of(network: nn.Module) -> str:
    """What its owner calls it: the class, seen through a wrapper."""
    return type(getattr(network, "module", network)).__name__


def duplicate(network: nn.Module) -> nn.Module:
    """A copy, also of one whose layers keep a result of their last forward (torch's older weight and spectral norm)."""
    results = (value for module in network.modules() for value in vars(module).values() if isinstance(value, Tensor))
    return copy.deepcopy(network, {id(value): value.detach().clone() for value in results if not value.is_leaf})


def fixed_parameters(network: nn.Module) -> frozenset[str]:
    """Names of those that are never trained."""
    return frozenset(name for name, parameter in network.named_parameters() if not parameter.requires_grad)


def fixed_layers(network: nn.Module) -> frozenset[str]:
    """Names of the modules that compute as in evaluation while the others train."""
    still = frozenset(name for name, module in network.named_modules() if not module.training)
    return still if any(module.training for module in network.modules()) else frozenset()


def fixed_buffers(network: nn.Module) -> frozenset[str]:
    """Names of the buffers of those layers."""
    still = fixed_layers(network)
    return frozenset(name for name, _ in network.named_buffers() if name.rpartition(".")[0] in still)


def _unfit(tensor: Tensor) -> str:
    if is_lazy(tensor):
        return (
            "has no shape yet (a lazy layer, such as LazyLinear): call the network once on a batch of inputs before "
            "giving it"
        )
    if tensor.is_meta:
        return "has no values (it is on the meta device): give the network with its values, on the CPU"
    if tensor.is_quantized:
        return "is quantised, and quantised numbers cannot be trained or averaged: give the network in float32"
    if tensor.layout is not Tensor().layout:
        return f"is a sparse tensor ({tensor.layout}); only dense ones can be trained and sent: use .to_dense()"
    if tensor.is_complex():
        return "is complex; only real numbers can be averaged: keep real and imaginary parts as two real parameters"
    return ""


def _called(name: str, network: nn.Module) -> str:
    return f"the submodule {name!r}" if name else f"the network {name_of(network)}"
