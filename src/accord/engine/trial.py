"""One forward and one backward pass before the start, on two samples of the data.

What is wrong with a network is then said once and in one sentence, instead of by every client in the first round.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accord.core.given import name_of
from accord.core.model import Model
from accord.data.federated import FederatedData
from accord.errors import AccordError, ConfigError


def try_network(model: Model, data: FederatedData) -> None:
    """Refuse a network that cannot be trained on this data. The model and torch's generator stay as they are."""
    x, y = _two_samples(data)
    x, y = x.to(model.device), y.to(model.device)
    who = name_of(model.network)
    params, buffers = model.init()
    leaves = {name: t.requires_grad_() for name, t in params.items()}
    with _own_generator(model), torch.enable_grad():
        try:
            out = model.train(leaves, buffers, x)
        except AccordError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the network {who} cannot compute samples of shape {tuple(x.shape[1:])} and type {x.dtype} "
                f"({_first_line(error)}): {_advice(x, next(iter(params.values())).dtype)}"
            ) from error
        _check_logits(who, out.logits, len(x), data.num_classes)
        _check_features(who, out.features, len(x), model.num_features)
        loss = functional.cross_entropy(out.logits, y)
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True) if loss.requires_grad else ()
    slopes = [slope for slope in found if slope is not None]
    if not slopes:
        raise ConfigError(
            f"no gradient reaches any parameter of the network {who}: its forward must not detach its outputs, nor run "
            "under torch.no_grad()"
        )
    if not all(bool(torch.isfinite(slope).all()) for slope in slopes):
        raise ConfigError(
            f"the first gradient of the network {who} holds NaN or infinity: check its first weights and the scale of "
            "the inputs"
        )


def trains_on_one(model: Model, data: FederatedData) -> bool:
    """Whether a batch of one sample can be trained on; batch norm of a vector cannot."""
    x, _ = _two_samples(data)
    params, buffers = model.init()
    with _own_generator(model), torch.no_grad():
        try:
            model.train(params, buffers, x[:1].to(model.device))
        except ValueError:  # Expected more than 1 value per channel when training
            return False
    return True


def _own_generator(model: Model) -> AbstractContextManager[None]:
    """Dropout's draws are nobody's concern."""
    return torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else [])


def _two_samples(data: FederatedData) -> tuple[Tensor, Tensor]:
    """The largest client's first two; one that has only one gives it twice."""
    client = int(np.argmax(data.sizes))
    rows = np.resize(data.train[client][:2], 2)
    x, y = data.train_pool.take(rows)
    return (x if data.transform is None else data.transform(client, rows, x)), y


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")


def _advice(x: Tensor, weights: torch.dtype) -> str:
    if not x.is_floating_point():
        return "these inputs are whole numbers, for networks that look tokens up; for others give x.astype('float32')"
    if weights != x.dtype:
        return f"its parameters are {weights}; give the network as network.to({x.dtype})"
    return "give samples as the network takes them, or a network made for such samples"


def _check_logits(who: str, logits: Tensor, count: int, classes: int) -> None:
    wanted = f"logits of shape [samples, {classes}], a real number for every class"
    if not isinstance(logits, Tensor):
        raise ConfigError(f"the network {who} gives a {type(logits).__name__}, but is to give {wanted}")
    shape = tuple(logits.shape)
    if len(shape) == 2 and shape[0] == count and shape[1] != classes and logits.is_floating_point():
        one = ", also where there are two" if shape[1] == 1 else ""
        raise ConfigError(
            f"the network {who} gives {shape[1]} output{'s' if shape[1] != 1 else ''} for each sample, but the data "
            f"has {classes} classes: its last layer must give one for every class{one}"
        )
    if shape != (count, classes) or not logits.is_floating_point():
        raise ConfigError(
            f"for {count} samples the network {who} gives {shape} {logits.dtype}, but is to give {wanted}"
        )
    if not bool(torch.isfinite(logits).all()):
        raise ConfigError(
            f"the network {who} gives NaN or infinity before any training: check its first weights and the scale of "
            "the inputs"
        )


def _check_features(who: str, features: Tensor, count: int, known: int) -> None:
    if not isinstance(features, Tensor) or features.dim() != 2 or len(features) != count:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(
            f"for {count} samples the network {who} gives features {got}, but they must be [samples, features], what "
            "its head reads"
        )
    if known and known != features.shape[1]:
        raise ConfigError(
            f"the network {who} says that it has {known} features (num_features), but gives {features.shape[1]}"
        )
