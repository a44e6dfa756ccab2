"""What runs that are still to do will take of a GPU, by what alike ones took."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median

from accord.config import RunConfig, to_dict
from accord.papers.records import Records
from accord.papers.wanted import Wanted

FEWEST = 10  # rounds: a shorter run's seconds are those of its compilation


def foreseen(left: Sequence[Wanted], records: Records) -> str:
    """A sentence; empty where nothing is known of any of them."""
    rates: dict[str, list[float]] = {}
    devices: dict[str, None] = {}
    for record in (record for known in records.by_question.values() for record in known):
        if record.device_seconds and record.rounds_done >= FEWEST:
            for kind in _kinds(record.config):
                rates.setdefault(kind, []).append(record.device_seconds / record.rounds_done)
            devices[record.fields["hardware"].get("gpu", "a GPU")] = None
    seconds = []
    for config in (run.config for run in left):
        alike = next((rates[kind] for kind in _kinds(config) if kind in rates), None)
        if alike is not None:
            seconds.append(config.rounds * median(alike))
    if not seconds:
        return ""
    which = "" if len(seconds) == len(left) else f" for {len(seconds)} of them"
    minutes = max(round(sum(seconds) / 60), 1)
    return f"About {minutes} min of {' or '.join(devices)}{which}, by what runs in the same federation took."


def _kinds(config: RunConfig) -> tuple[str, str]:
    """The same for runs whose rounds take about as long: of one method, whatever its weights; and of any method."""
    values = to_dict(config)
    told = {
        "data": ("name", "limit"),
        "partition": ("name", "clients"),
        "transform": ("name",),
        "clients": ("count", "fraction"),
        "model": ("name",),
        "local": ("epochs", "steps", "batch_size"),
    }
    alike = [[part, name, values[part].get(name)] for part, names in told.items() for name in names]
    return json.dumps([config.algorithm.name, alike]), json.dumps(alike)
