"""Whether the data of runs are at hand: each data set is asked for once, before any run is begun.

A federation's own, and the public one that a method's server may hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

from accord.config import RunConfig, to_dict
from accord.engine.build import load_data, load_public
from accord.errors import AccordError
from accord.papers.wanted import Wanted


def lacking(runs: Sequence[Wanted]) -> list[str]:
    """For each run why its data cannot be had, empty if they can; what has to be downloaded is downloaded here."""
    why: dict[str, str] = {}
    found = []
    for run in runs:
        sources = _sources(run.config)
        for source, load in sources.items():
            if source not in why:
                why[source] = _reason(load)
        found.append(next((why[source] for source in sources if why[source]), ""))
    return found


def _sources(config: RunConfig) -> dict[str, Callable[[], object]]:
    """What loads each data set of a run."""
    data = to_dict(config)["data"]
    sources: dict[str, Callable[[], object]] = {json.dumps([config.task, data]): partial(load_data, config)}
    public = config.algorithm.options.get("public")
    if isinstance(public, str) and public:
        sources[json.dumps([public, data["dir"], data["download"]])] = partial(load_public, config, public)
    return sources


def _reason(load: Callable[[], object]) -> str:
    """Empty: they are there."""
    try:
        load()
    except AccordError as error:
        return str(error)
    return ""
