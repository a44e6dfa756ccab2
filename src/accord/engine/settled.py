"""What a configuration leaves open, settled by the data: who the clients are, how many, what they are tested on.

A run is made with the settled configuration, and its folder says it: `partition.name = "natural"` and the number of
clients where the data names them, where its own files lie from wherever it is resumed, and that its data was handed
over where it was.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from accord.config import RunConfig
from accord.data.division import arrangement
from accord.data.federated import Dataset, FederatedData
from accord.data.own.given import GIVEN

OWN_FILES = {"table": ("path", "test"), "folder": ("path",)}  # data sets of the user's own files, and who names these


def settled(config: RunConfig, dataset: Dataset | FederatedData | None = None) -> RunConfig:
    """The configuration with nothing left open; without a data set, as for data that names no clients."""
    config = _with_whole_paths(config)
    if config.task == "auto" and dataset is not None:
        config = replace(config, task=dataset.problem)
    part = config.partition
    if isinstance(dataset, FederatedData):
        return config
    found = arrangement(dataset, part.name, part.clients, part.test)
    return replace(config, partition=replace(part, name=found.partition, clients=found.clients, test=found.test))


def handed_over(config: RunConfig) -> RunConfig:
    """The configuration of a run whose data is given to it, and not what `data.name` says."""
    return replace(config, data=replace(config.data, name=GIVEN, options={}))


def _with_whole_paths(config: RunConfig) -> RunConfig:
    """Files that lie here, below the folder in which the run began, are found from other folders too."""
    options = dict(config.data.options)
    for key in OWN_FILES.get(config.data.name, ()):
        options[key] = _whole(options[key])
    pace = replace(config.pace, devices=_whole(config.pace.devices), intervals=_whole(config.pace.intervals))
    if options == config.data.options and pace == config.pace:
        return config
    return replace(config, data=replace(config.data, options=options), pace=pace)


def _whole(path: str) -> str:
    """A path that holds in every folder, if there is something."""
    place = Path(os.path.expanduser(path or ""))
    return str(place.absolute()) if path and place.exists() else path
