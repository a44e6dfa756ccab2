"""One forward and one backward pass before the start, on two samples of the data.

What is wrong with a network is then said once and in one sentence, instead of by every client in the first round.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from accord.core.given import name_of
from accord.core.model import Model
from accord.data.federated import FederatedData
from accord.errors import AccordError, ConfigError
from accord.problems import Problem


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
        expected = (len(x), *model.problem.shape(tuple(y.shape[1:]), data.num_classes))
        _check_outputs(who, out.logits, expected, model.problem)
        _check_features(who, out.features, len(x), model.num_features)
        loss = model.problem.mean_loss(out.logits, y)
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


def _check_outputs(who: str, outputs: Tensor, expected: tuple[int, ...], problem: Problem) -> None:
    one, many = problem.output
    each = "sample" if len(expected) == 2 else "position"
    wanted = (
        f"logits of shape [samples, {', '.join(map(str, expected[1:]))}], a real number for every {one}"
        f"{'' if each == 'sample' else ' at every position'} (task {problem.name})"
    )
    if not isinstance(outputs, Tensor):
        raise ConfigError(f"the network {who} gives a {type(outputs).__name__}, but is to give {wanted}")
    shape, real = tuple(outputs.shape), outputs.is_floating_point()
    if shape != expected and shape[:-1] == expected[:-1] and real:
        two = ", also where there are two" if shape[-1] == 1 and problem.one_class else ""
        raise ConfigError(
            f"the network {who} gives {shape[-1]} output{'s' if shape[-1] != 1 else ''} for each {each}, but the data "
            f"has {expected[-1]} {one if expected[-1] == 1 else many}: its last layer must give one for every "
            f"{one}{two}"
        )
    if shape != expected or not real:
        raise ConfigError(
            f"for {expected[0]} samples the network {who} gives {shape} {outputs.dtype}, but is to give {wanted}"
        )
    if not bool(torch.isfinite(outputs).all()):
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
