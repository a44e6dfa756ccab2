"""The methods by name: the only registry. A new method is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from accord.algorithms.centralized import centralized
from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedprox import fedprox
from accord.algorithms.local import local
from accord.algorithms.scaffold import scaffold
from accord.algorithms.server_optimizers import fedadam, fedavgm, fedyogi
from accord.core.algorithm import Algorithm
from accord.settings import Registry

ALGORITHMS: Registry[Callable[..., Algorithm]] = Registry("algorithm")

for factory in (fedavg, fedprox, scaffold, fedavgm, fedadam, fedyogi, local, centralized):
    ALGORITHMS.add(factory.__name__)(factory)
