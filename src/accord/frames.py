"""Records of a run as tables of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accord.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

Record = Mapping[str, Any]


def scalars(record: Record, prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in a record, nested names joined by a slash.

    >>> dict(scalars({"accuracy": 0.5, "clients": {"best": 1}, "cohort": [3, 4], "loss": None}))
    {'accuracy': 0.5, 'clients/best': 1.0}
    """
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


def frame_of(records: Iterable[Record], keys: Sequence[str] = ("round",)) -> pd.DataFrame:
    """A row per record, `keys` as its index and a column for every other number; a ConfigError without pandas."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ConfigError("a data frame needs pandas: pip install 'accord-fl[tables]'") from error
    rows = [{**dict(scalars(record)), **{key: record[key] for key in keys}} for record in records]
    every = pd.DataFrame(rows, columns=None if rows else list(keys))
    frame: pd.DataFrame = every.set_index(list(keys) if len(keys) > 1 else keys[0])
    return frame
