"""The models by name. A factory takes the shape of one sample, the number of classes and its own settings."""

from __future__ import annotations

from collections.abc import Callable

from accord.models.network import Network
from accord.settings import Registry

MODELS: Registry[Callable[..., Network]] = Registry("model", home="accord.models")
