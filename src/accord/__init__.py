"""Accord: federated learning that agrees, on data that doesn't.

>>> import accord                                                       # doctest: +SKIP
>>> config = accord.load_config(sets=["algorithm.name=scaffold"])       # doctest: +SKIP
>>> outcome = accord.run(config)                                        # doctest: +SKIP
>>> outcome.summary["accuracy"], outcome.folder                         # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accord._version import __version__

if TYPE_CHECKING:
    from accord.algorithms import ALGORITHMS
    from accord.config import RunConfig, from_dict, load_config
    from accord.data import federate, from_arrays, from_huggingface, from_torch, load_dataset
    from accord.engine.federation import Federation
    from accord.engine.run import Outcome, resume, run
    from accord.measures import Metric, metric
    from accord.models import adapt
    from accord.observe import Observer

__all__ = [
    "ALGORITHMS",
    "Federation",
    "Metric",
    "Observer",
    "Outcome",
    "RunConfig",
    "__version__",
    "adapt",
    "federate",
    "from_arrays",
    "from_dict",
    "from_huggingface",
    "from_torch",
    "load_config",
    "load_dataset",
    "metric",
    "resume",
    "run",
]

# Imported on first use: `accord --help` and a worker of one part of the package need not load all of it.
_HOMES = {
    "accord.algorithms": ("ALGORITHMS",),
    "accord.config": ("RunConfig", "from_dict", "load_config"),
    "accord.data": ("federate", "from_arrays", "from_huggingface", "from_torch", "load_dataset"),
    "accord.engine.federation": ("Federation",),
    "accord.engine.run": ("Outcome", "resume", "run"),
    "accord.measures": ("Metric", "metric"),
    "accord.models": ("adapt",),
    "accord.observe": ("Observer",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'accord' has no attribute {name!r}")
