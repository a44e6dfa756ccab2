"""Whether the data of runs are at hand: each data set is asked for once, before any run is begun."""

from __future__ import annotations

import json
from collections.abc import Sequence

from accord.config import RunConfig, to_dict
from accord.engine.build import load_data
from accord.errors import AccordError
from accord.papers.wanted import Wanted


def lacking(runs: Sequence[Wanted]) -> list[str]:
    """For each run why its data cannot be had, empty if they can; what has to be downloaded is downloaded here."""
    why: dict[str, str] = {}
    for run in runs:
        if _source(run.config) not in why:
            why[_source(run.config)] = _reason(run.config)
    return [why[_source(run.config)] for run in runs]


def _source(config: RunConfig) -> str:
    return json.dumps([config.task, to_dict(config)["data"]])


def _reason(config: RunConfig) -> str:
    """Empty: they are there."""
    try:
        load_data(config)
    except AccordError as error:
        return str(error)
    return ""
