"""Any `nn.Module` as a network: name its last layer, and the features are whatever that layer is given.

>>> import torch
>>> module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
>>> network = adapt(module, head="3", example=torch.zeros(5, 2, 2))
>>> network.num_features
3
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from accord.core.given import check_ordinary
from accord.core.model import Fuse, Shape
from accord.errors import ConfigError, nearest
from accord.models.shapes import evaluating

Given = Tensor | Mapping[str, Tensor]  # samples, or their several inputs by name


class Adapted(nn.Module):
    """A user's module, its head and perhaps its feature maps known by name. Made by `adapt`.

    Where a sample is several inputs, the module is given them as arguments of their names, or as one dictionary if its
    forward has no such arguments.
    """

    takes_fields = True

    own_prefix = "module."  # stands before the names of its values; a model that leaves has them without

    def __init__(self, module: nn.Module, head: str, maps: str | None) -> None:
        super().__init__()
        self.module = module
        self.training = module.training  # a module in evaluation mode is so as a whole
        self.head_name = f"module.{head}"
        self.maps_name = None if maps is None else f"module.{maps}"
        self.map_shape: Shape | None = None
        self._num_features = getattr(self.get_submodule(self.head_name), "in_features", None)

    @property
    def num_features(self) -> int:
        """D, the length of a feature vector."""
        if not isinstance(self._num_features, int):
            raise ConfigError(
                f"the head {_plain(self.head_name)!r} does not tell how many inputs it takes; "
                "give adapt(..., example=a batch of inputs)"
            )
        return self._num_features

    def forward(self, x: Given) -> Tensor:
        """What the module itself gives: [B, C] logits."""
        logits: Tensor = self._run(x)
        return logits

    def _run(self, x: Given) -> Any:
        if isinstance(x, Mapping) and self._by_name(tuple(x)):
            return self.module(**x)
        return self.module(x)

    def _by_name(self, names: tuple[str, ...]) -> bool:
        known = inspect.signature(self.module.forward).parameters
        return any(one.kind is one.VAR_KEYWORD for one in known.values()) or set(names) <= known.keys()

    def features(self, x: Given) -> Tensor:
        """[B, D] features: what the head is given, [B, L, D] where it answers for every position."""
        return self.logits_and_features(x)[1]

    def feature_maps(self, x: Given) -> Tensor:
        """[B, channels, height, width] output of the submodule named as `maps`."""
        seen: list[Any] = []
        with self._watch_maps(seen, None):
            self._run(x)
        return self._feature_maps(seen)

    def logits_and_features(self, x: Given, fuse: Fuse | None = None) -> tuple[Tensor, Tensor]:
        """Both in one pass; `fuse` changes the feature maps on their way."""
        given: list[tuple[Any, ...]] = []
        hook = self.get_submodule(self.head_name).register_forward_pre_hook(
            lambda _, args, kwargs: given.append((*args, *kwargs.values())), with_kwargs=True
        )
        try:
            if fuse is None:
                logits = self._run(x)
            else:
                seen: list[Any] = []
                with self._watch_maps(seen, fuse):
                    logits = self._run(x)
                self._feature_maps(seen)
        finally:
            hook.remove()
        checked = self._checked_logits(logits)
        return checked, self._features(given, checked)

    def check(self, example: Given) -> None:
        """Dry run in evaluation mode; learns the number of features and the shape of the maps."""
        with evaluating(self.module):
            logits, features = self.logits_and_features(example)
            maps = None if self.maps_name is None else self.feature_maps(example)
        count = len(next(iter(example.values())) if isinstance(example, Mapping) else example)
        for what, tensor in (("logits", logits), ("features", features)):
            if len(tensor) != count:
                raise ConfigError(
                    f"the {what} have shape {tuple(tensor.shape)}, but the example holds {count} "
                    "samples; the first dimension must count samples"
                )
        self._num_features = features.shape[-1]
        self.map_shape = None if maps is None else tuple(maps.shape[1:])

    def _features(self, given: list[tuple[Any, ...]], logits: Tensor) -> Tensor:
        name = _plain(self.head_name)
        if len(given) != 1:
            raise ConfigError(
                f"the head {name!r} must be called exactly once in a forward pass, but was called "
                f"{len(given)} times; name the last layer, the one that gives the logits"
            )
        if len(given[0]) != 1 or not isinstance(given[0][0], Tensor):
            kinds = ", ".join(type(item).__name__ for item in given[0]) or "nothing"
            raise ConfigError(f"the head {name!r} must be called with one tensor, got {kinds}")
        features = given[0][0]
        if features.dim() != 2 and not (features.dim() == logits.dim() == 3):
            raise ConfigError(
                f"the head {name!r} was given a tensor of shape {tuple(features.shape)}, but features must "
                "be [samples, features]; flatten or pool before the head, or name a later layer"
            )
        return features

    def _checked_logits(self, logits: object) -> Tensor:
        if not isinstance(logits, Tensor) or logits.dim() not in (2, 3):
            got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise ConfigError(
                f"{type(self.module).__name__} must return one tensor of logits [samples, classes], got {got}"
            )
        return logits

    def _feature_maps(self, seen: list[Any]) -> Tensor:
        name = _plain(str(self.maps_name))
        if len(seen) != 1:
            raise ConfigError(
                f"the maps {name!r} must be computed exactly once in a forward pass, "
                f"but were computed {len(seen)} times"
            )
        if not isinstance(seen[0], Tensor) or seen[0].dim() != 4:
            got = tuple(seen[0].shape) if isinstance(seen[0], Tensor) else type(seen[0]).__name__
            raise ConfigError(
                f"the maps {name!r} must be one tensor [samples, channels, height, width], got {got}; "
                "name the last convolutional part"
            )
        return seen[0]

    @contextmanager
    def _watch_maps(self, seen: list[Any], fuse: Fuse | None) -> Iterator[None]:
        if self.maps_name is None:
            raise ConfigError(
                "this network's feature maps are not known; name the submodule that gives them: adapt(..., maps=...)"
            )

        def watch(_: nn.Module, __: tuple[Any, ...], out: Any) -> Any:
            seen.append(out)
            # A shape that cannot be fused is refused with a message when the pass is over.
            return fuse(out) if fuse is not None and isinstance(out, Tensor) and out.dim() == 4 else out

        hook = self.get_submodule(self.maps_name).register_forward_hook(watch)
        try:
            yield
        finally:
            hook.remove()


def adapt(module: nn.Module, head: str, maps: str | None = None, example: Given | None = None) -> Adapted:
    """Use `module` as a network. `head` and `maps` are names of submodules, e.g. "fc" or "classifier.6".

    Parameters with `requires_grad=False` are not trained, and submodules in evaluation mode stay in it (a module that
    is in evaluation mode as a whole is trained as a whole).

    With an `example` batch of inputs a dry run finds mistakes now, otherwise they are found at the first use.
    """
    check_ordinary(module)
    names = [name for name, _ in module.named_modules() if name]
    for role, name in (("head", head), ("maps", maps)):
        if name is not None and name not in names:
            raise ConfigError(
                f"{type(module).__name__} has no submodule {name!r} to use as its {role}."
                f"{nearest(str(name), names)} Submodules: {', '.join(names) or 'none'}."
            )
    network = Adapted(module, head, maps)
    if example is not None:
        network.check(example)
    return network


def _plain(name: str) -> str:
    return name.removeprefix("module.")
