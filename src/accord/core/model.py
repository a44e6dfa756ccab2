"""A model as data: an `nn.Module` used as a pure function of named parameters and buffers.

The module only says what to compute; its own tensors are never trained. Two copies are kept, one in training and
one in evaluation mode, so that a frozen model's forward can never write a running mean. What its owner has frozen
(`accord.core.given`) is part of the function: it is in no tree, so nothing is sent, averaged or moved of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from accord.core.fields import Fields
from accord.core.given import check_usable, duplicate, fixed_buffers, fixed_layers, fixed_parameters
from accord.core.tensors import Tree, is_stacked, ordered
from accord.core.whole import as_given
from accord.errors import ConfigError
from accord.problems import PROBLEMS, Problem

NORM_LAYERS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)

Shape = tuple[int, ...]
Fuse = Callable[[Tensor], Tensor]  # what to put in the place of the feature maps
Layers = Callable[[nn.Module], nn.Module]  # exchanges a network's layers for others that compute the same, in place


class Classifier(Protocol):
    """A module whose head and features are known: a `Network`, or any module through `adapt`.

    Its outputs are called logits whatever the problem. One that answers for every position of a sample gives
    [B, L, C] of features [B, L, D]. Where samples are several inputs, one that has a true `takes_fields` is given them
    by name, and all others the row they are packed into.
    """

    head_name: str  # parameters under this prefix are the head's
    map_shape: Shape | None  # shape of one sample's feature maps, where it is known

    @property
    def num_features(self) -> int:
        """D, the length of a feature vector."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """[B, C] logits."""
        ...

    def features(self, x: Tensor) -> Tensor:
        """[B, D] features: what the head reads."""
        ...

    def feature_maps(self, x: Tensor) -> Tensor:
        """[B, channels, height, width] output of the convolutions."""
        ...

    def logits_and_features(self, x: Tensor, fuse: Fuse | None = None) -> tuple[Tensor, Tensor]:
        """Both in one pass; `fuse` changes the feature maps on their way."""
        ...


class Out(NamedTuple):
    """[B, C] logits and [B, D] features, the input of the last layer; its mean over positions where it reads those."""

    logits: Tensor
    features: Tensor


class _Both(nn.Module):
    """Gives `functional_call` one forward that returns logits and features."""

    def __init__(self, network: nn.Module, fields: Fields | None) -> None:
        super().__init__()
        self.network, self.fields = network, fields

    def forward(self, x: Tensor, fuse: Fuse | None) -> Out:
        given: Any = x if self.fields is None else self.fields.unpacked(x)
        logits, features = cast(Classifier, self.network).logits_and_features(given, fuse)
        return Out(logits, features.mean(1) if features.dim() == 3 and logits.dim() == 3 else features)


class _Round(torch.autograd.Function):
    """Many tensors to bf16 in one kernel, and their gradients back in one; autocast takes one for each."""

    @staticmethod
    def forward(*tensors: Tensor) -> tuple[Tensor, ...]:
        return _converted(tensors, torch.bfloat16)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing to keep."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Any, Any]:
        return tuple(tensor.bfloat16() for tensor in tensors), in_dims

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled():  # the gradient's own gradient is wanted
            return tuple(grad.float() for grad in grads)
        return _converted(grads, torch.float32)


def _converted(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    made = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(made, list(tensors))
    return tuple(made)


class _Maps(nn.Module):
    """The same for a forward that ends at the feature maps."""

    def __init__(self, network: nn.Module, fields: Fields | None) -> None:
        super().__init__()
        self.network, self.fields = network, fields

    def forward(self, x: Tensor) -> Tensor:
        given: Any = x if self.fields is None else self.fields.unpacked(x)
        return cast(Classifier, self.network).feature_maps(given)


class Model:
    """`network` is a `Classifier`.

    Whoever builds the model hands it the `layers` to compute with, such as those that suit its device.
    `compiled` says that many clients' forwards are to be traced together.
    """

    def __init__(
        self,
        network: nn.Module,
        device: torch.device | str = "cpu",
        *,
        bf16: bool = False,
        channels_last: bool = False,
        compiled: bool = False,
        layers: Layers | None = None,
        problem: Problem | None = None,
        fields: Fields | None = None,
    ) -> None:
        if not hasattr(network, "logits_and_features"):
            raise ConfigError(
                f"{type(network).__name__} does not say which layer is its head: "
                'wrap it, e.g. accord.models.adapt(module, head="fc")'
            )
        check_usable(network)
        network = duplicate(network).to(device)
        self.device = torch.device(device)
        self.bf16, self.channels_last, self.compiled, self.layers = bf16, channels_last, compiled, layers
        self.problem = problem or PROBLEMS["classification"]  # what its outputs mean
        self.fields = fields  # of the samples it is given
        self.network = network  # the template
        trained, frozen = self._copied(), self._copied().eval()
        apart = fields if getattr(network, "takes_fields", False) else None
        self._train, self._reference, self._maps = _Both(trained, apart), _Both(frozen, apart), _Maps(frozen, apart)
        kinds = dict(network.named_modules())
        self.head_prefix = str(getattr(network, "head_name", "head")) + "."
        self.frozen_names = tuple(sorted(fixed_parameters(network)))  # by its owner; no method ever sees them
        names = sorted({name for name, _ in network.named_parameters()} - set(self.frozen_names))
        self._weights = frozenset(names)
        self.buffer_names = tuple(sorted({name for name, _ in network.named_buffers()} - fixed_buffers(network)))
        self.norm_names = tuple(
            sorted(
                name
                for prefix, module in kinds.items()
                if isinstance(module, NORM_LAYERS)
                for leaf, _ in module.named_parameters(recurse=False)
                if (name := f"{prefix}.{leaf}" if prefix else leaf) in self._weights
            )
        )
        # One tensor under two names? Torch would look for them at every call.
        tensors = [*network.named_parameters(remove_duplicate=False), *network.named_buffers(remove_duplicate=False)]
        self._tied = len(tensors) > len({id(tensor) for _, tensor in tensors})
        self.head_names = tuple(name for name in names if name.startswith(self.head_prefix))
        self.body_names = tuple(name for name in names if not name.startswith(self.head_prefix))
        # Layers that couple the samples of a batch forbid padding it (the plan asks).
        self.couples_batch = any(
            module.training or module.running_mean is None
            for module in trained.modules()
            if isinstance(module, _BatchNorm)
        )
        self.num_features = int(getattr(network, "num_features", 0))

    def _copied(self) -> nn.Module:
        """To compute with: gradients are asked of the values put in the place of its own."""
        network = duplicate(self.network).requires_grad_(False)
        if self.channels_last:
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        still = fixed_layers(network)
        for name, module in network.named_modules():
            module.training = name not in still
        return network if self.layers is None else self.layers(network)

    @property
    def head_is_frozen(self) -> bool:
        """Whether its owner has frozen the head, or some of it."""
        return any(name.startswith(self.head_prefix) for name in self.frozen_names)

    def computing(self, network: nn.Module) -> Model:
        """Another network on the same device, in the same precision and layout, with the same layers."""
        return Model(
            network,
            self.device,
            bf16=self.bf16,
            channels_last=self.channels_last,
            compiled=self.compiled,
            layers=self.layers,
            problem=self.problem,
            fields=self.fields,
        )

    def starting_from(self, params: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> Model:
        """The same network with these as its initial values, as a node receives them."""
        network = duplicate(self.network)
        network.load_state_dict({**params, **buffers}, strict=False)
        return self.computing(network)

    def init(self) -> tuple[Tree, Tree]:
        """What moves of the parameters and buffers it was made with; whoever makes it seeds its initialisers."""
        return self.values(self.network)

    def values(self, network: nn.Module) -> tuple[Tree, Tree]:
        """A network's own parameters and buffers, e.g. pretrained ones, as far as they move."""
        params, buffers = (
            {name: t.detach().to(self.device).clone() for name, t in own if name in moving}
            for own, moving in (
                (network.named_parameters(), self._weights),
                (network.named_buffers(), set(self.buffer_names)),
            )
        )
        return ordered(params), ordered(buffers)

    def owned(self, params: Mapping[str, Tensor]) -> Tree:
        """Copies to train on, laid out in memory as the forward pass wants them."""
        return {name: self._laid(t.detach().clone()) for name, t in params.items()}

    def train(
        self, params: Mapping[str, Tensor], buffers: Mapping[str, Tensor], x: Tensor, fuse: Fuse | None = None
    ) -> Out:
        """Forward in training mode. `buffers` are updated in place, so they must belong to the caller."""
        return self._call(self._train, params, buffers, x, fuse)

    def reference(
        self, params: Mapping[str, Tensor], buffers: Mapping[str, Tensor], x: Tensor, fuse: Fuse | None = None
    ) -> Out:
        """Forward in evaluation mode; writes nothing. `fuse` changes the feature maps on their way."""
        return self._call(self._reference, params, buffers, x, fuse)

    def maps(self, params: Mapping[str, Tensor], buffers: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The feature maps in evaluation mode."""
        return cast(Tensor, self._run(self._maps, params, buffers, x))

    def head(self, params: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Logits of given features."""
        prefix = self.head_prefix
        own = {name[len(prefix) :]: t for name, t in params.items() if name.startswith(prefix)}
        module = self.network.get_submodule(prefix[:-1])
        with self._precision():
            return cast(Tensor, functional_call(module, own, (features,))).to(features.dtype)

    def _call(
        self,
        both: nn.Module,
        params: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        x: Tensor,
        fuse: Fuse | None,
    ) -> Out:
        out = cast(Out, self._run(both, params, buffers, x, fuse))
        # Losses are computed in full precision; only the network's own products are not.
        return Out(*(t.to(torch.get_default_dtype()) for t in out)) if self.bf16 else out

    def _run(
        self, wrapped: nn.Module, params: Mapping[str, Tensor], buffers: Mapping[str, Tensor], x: Tensor, *more: object
    ) -> object:
        values = _named(params, buffers)
        with self._precision():
            values = self._rounded(values) if self.bf16 else values
            return functional_call(wrapped, values, (self._laid(x), *more), tie_weights=self._tied)

    def _rounded(self, values: Tree) -> Tree:
        """Weights in bf16, all at once; those of norm layers stay, their sums need the precision.

        Those of a stack of clients are left to its layers.
        """
        names = [f"network.{name}" for name in sorted(self._weights - set(self.norm_names))]
        names = [name for name in names if values[name].dtype == torch.float32 and not is_stacked(values[name])]
        if not names:
            return values
        rounded = cast(tuple[Tensor, ...], _Round.apply(*(values[name] for name in names)))  # type: ignore[no-untyped-call]
        return {**values, **dict(zip(names, rounded, strict=True))}

    def _laid(self, tensor: Tensor) -> Tensor:
        images = self.channels_last and tensor.dim() == 4 and not is_stacked(tensor)
        return tensor.contiguous(memory_format=torch.channels_last) if images else tensor

    def _precision(self) -> AbstractContextManager[object]:
        # Without its cache: that would hand one step's rounded weights to the next recorded one.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False) if self.bf16 else nullcontext()

    def module(self, params: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> nn.Module:
        """An ordinary trained `nn.Module` in evaluation mode, for the user to keep; frozen values as they were."""
        network = duplicate(self.network).cpu()
        network.load_state_dict({k: v.cpu() for k, v in {**params, **buffers}.items()}, strict=False)
        return as_given(network).eval()


def _named(params: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> Tree:
    """As the wrappers above call them."""
    return {f"network.{name}": t for tree in (params, buffers) for name, t in tree.items()}
