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
    from accord.config import RunConfig, from_dict, load_config
    from accord.core.methods import ALGORITHMS
    from accord.data import (
        federate,
        from_arrays,
        from_folder,
        from_huggingface,
        from_sequences,
        from_table,
        from_torch,
        load_dataset,
    )
    from accord.deploy import Loaded, load, predict
    from accord.deploy.exported import export
    from accord.engine.federation import Federation
    from accord.engine.run import Outcome, resume, run
    from accord.measures import Metric, metric
    from accord.models import adapt
    from accord.observe import Observer
    from accord.study.comparison import compare
    from accord.study.results import ComparisonResult, TuningResult
    from accord.study.tuning import tune

__all__ = [
    "ALGORITHMS",
    "ComparisonResult",
    "Federation",
    "Loaded",
    "Metric",
    "Observer",
    "Outcome",
    "RunConfig",
    "TuningResult",
    "__version__",
    "adapt",
    "compare",
    "export",
    "federate",
    "from_arrays",
    "from_dict",
    "from_folder",
    "from_huggingface",
    "from_sequences",
    "from_table",
    "from_torch",
    "load",
    "load_config",
    "load_dataset",
    "metric",
    "predict",
    "resume",
    "run",
    "tune",
]

# Imported on first use: `accord --help` and a worker of one part of the package need not load all of it.
_HOMES = {
    "accord.core.methods": ("ALGORITHMS",),
    "accord.config": ("RunConfig", "from_dict", "load_config"),
    "accord.data": (
        "federate",
        "from_arrays",
        "from_folder",
        "from_huggingface",
        "from_sequences",
        "from_table",
        "from_torch",
        "load_dataset",
    ),
    "accord.deploy": ("Loaded", "load", "predict"),
    "accord.deploy.exported": ("export",),
    "accord.engine.federation": ("Federation",),
    "accord.engine.run": ("Outcome", "resume", "run"),
    "accord.measures": ("Metric", "metric"),
    "accord.models": ("adapt",),
    "accord.observe": ("Observer",),
    "accord.study.comparison": ("compare",),
    "accord.study.results": ("ComparisonResult", "TuningResult"),
    "accord.study.tuning": ("tune",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'accord' has no attribute {name!r}")
