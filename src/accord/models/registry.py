"""The models by name.

A factory takes the shape of one sample, the number of outputs (classes, or numbers asked for) and its own settings; one
that has an argument `facts` is given all that is known of the data.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from accord.settings import Registry

MODELS: Registry[Callable[..., nn.Module]] = Registry("model", home="accord.models")
