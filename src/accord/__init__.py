"""Accord: federated learning that agrees, on data that doesn't.

>>> import accord                                                       # doctest: +SKIP
>>> outcome = accord.run(algorithm="scaffold", rounds=20)               # doctest: +SKIP
>>> outcome.summary["accuracy"], outcome.folder                         # doctest: +SKIP

`dir(accord)` lists what there is; `help(accord.run)` and the like have examples.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accord._version import __version__

if TYPE_CHECKING:
    from accord.api import describe, diagnose, explain, run
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
    from accord.diagnosis import Diagnosis
    from accord.engine.federation import Federation
    from accord.engine.run import Outcome, resume
    from accord.measures import Metric, metric
    from accord.models import adapt
    from accord.observe import Glance, Observer
    from accord.papers.reproduction import reproduce
    from accord.study.comparison import compare
    from accord.study.results import ComparisonResult, TuningResult
    from accord.study.tuning import tune

__all__ = [
    "ALGORITHMS",
    "ComparisonResult",
    "Diagnosis",
    "Federation",
    "Glance",
    "Loaded",
    "Metric",
    "Observer",
    "Outcome",
    "RunConfig",
    "TuningResult",
    "__version__",
    "adapt",
    "compare",
    "describe",
    "diagnose",
    "explain",
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
    "reproduce",
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
    "accord.diagnosis": ("Diagnosis",),
    "accord.engine.federation": ("Federation",),
    "accord.api": ("describe", "diagnose", "explain", "run"),
    "accord.engine.run": ("Outcome", "resume"),
    "accord.measures": ("Metric", "metric"),
    "accord.models": ("adapt",),
    "accord.observe": ("Glance", "Observer"),
    "accord.papers.reproduction": ("reproduce",),
    "accord.study.comparison": ("compare",),
    "accord.study.results": ("ComparisonResult", "TuningResult"),
    "accord.study.tuning": ("tune",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'accord' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
