"""The registry of transforms, and what their factories share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from accord.data.checks import check_clients
from accord.data.federated import ClientTransform, Dataset, Environment
from accord.errors import ConfigError, DataError
from accord.settings import Registry


@dataclass(frozen=True)
class Change:
    """What a transform factory returns: the change of each client's inputs and the test environments."""

    transform: ClientTransform | None
    environments: Sequence[Environment]


Factory = Callable[..., Change]
TRANSFORMS: Registry[Factory] = Registry("transform")


def make_transform(
    name: str, dataset: Dataset, clients: int, seed: int = 0, settings: Mapping[str, object] | None = None
) -> Change:
    """The transform of this name with its test environments, settings checked."""
    return TRANSFORMS[name](dataset, check_clients(clients), seed, **(settings or {}))


def black(dataset: Dataset, name: str) -> tuple[float, ...]:
    """What a black pixel becomes in each channel, (0 - mean) / std; refuses samples that are no images."""
    pool = dataset.train
    if pool.x.dim() != 4:
        raise ConfigError(
            f"the transform {name!r} needs images [N, C, H, W], but samples of {dataset.name!r} have shape "
            f"{tuple(pool.x.shape[1:])}; use transform = 'none' or 'permute'"
        )
    if len(pool.mean) != len(pool.std) or 0 in pool.std:
        raise DataError(f"data set {dataset.name!r} cannot be normalised with mean {pool.mean}, std {pool.std}")
    return tuple(-mean / std for mean, std in zip(pool.mean, pool.std, strict=True))
