"""Data that was handed over in Python and has no name a configuration could find it by."""

from __future__ import annotations

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.public.registry import DATASETS, Normalise
from accord.errors import DataError

GIVEN = "given"


@DATASETS.add(GIVEN)
def given(places: Places, *, normalise: Normalise = True) -> Dataset:
    """What Python code handed over: `accord.run(config, data=...)`."""
    raise DataError(
        "this run's data was handed over in Python, and a configuration cannot find it: give it again, as in "
        "accord.resume(folder, data=...)"
    )
