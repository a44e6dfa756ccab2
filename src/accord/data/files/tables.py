"""CSV and Parquet files as data frames, by pandas; nothing that could be a pickle is opened."""

from __future__ import annotations

import csv
import os
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.data.columns import cut, listed, quoted
from accord.errors import DataError

if TYPE_CHECKING:
    import pandas

TEXT = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
SEPARATORS = ";\t|,"
HEADER = 1 << 20  # characters of a first line; a longer one is no line of names


def read_table(
    path: str | os.PathLike[str], as_text: Iterable[str] = (), separator: str | None = None
) -> pandas.DataFrame:
    """The table in a file; columns in `as_text` keep what is written, so that 007 stays 007."""
    reader = need_pandas()
    place = Path(os.path.expanduser(path))
    ending = place.suffix.lower()
    if ending not in (*TEXT, *PARQUET):
        raise DataError(
            f"{place} is no table Accord reads: it must end in {', '.join((*TEXT, *PARQUET))}. From pandas: "
            f"frame.to_csv({place.stem + '.csv'!r}, index=False)"
        )
    if not place.is_file():
        what = "a folder" if place.is_dir() else "not there"
        raise DataError(f"{place.absolute()} is {what}; give a CSV or a Parquet file")
    try:
        frame: pandas.DataFrame = (
            _parquet(reader, place) if ending in PARQUET else _csv(reader, place, separator or TEXT[ending], as_text)
        )
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place} is not UTF-8 text (byte {error.start}: {error.reason}); save it again as CSV UTF-8"
        ) from error
    except ImportError as error:
        raise DataError("reading Parquet files needs pyarrow; install it: pip install 'accord-fl[tables]'") from error
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error.strerror or cut(str(error))}") from error
    except MemoryError as error:
        raise DataError(f"{place} does not fit into memory; leave columns or rows out before") from error
    except (ValueError, RuntimeError, ArithmeticError, LookupError, TypeError, Warning) as error:
        first = cut(" ".join(str(error).split()))
        raise DataError(f"{place} cannot be read as a table ({first}); look at that line, or save it again") from error
    if not len(frame):
        raise DataError(f"{place} has a line of names and no rows")
    return frame


def need_pandas() -> Any:
    """The package, or which one to install."""
    try:
        import pandas
    except ImportError as error:
        raise DataError("tables need pandas; install it: pip install 'accord-fl[tables]'") from error
    return pandas


def _csv(reader: Any, path: Path, separator: str, as_text: Iterable[str]) -> Any:
    names = _header(path, separator)
    if len(names) == 1 and (other := [s for s in SEPARATORS if s != separator and s in names[0]]):
        raise DataError(
            f"{path} has one column, {quoted(names[0])}: its fields seem to be separated by {other[0]!r}; say "
            f"separator={other[0]!r}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error", reader.errors.ParserWarning)  # rows longer than the names would be cut
        return reader.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig",
            index_col=False,
            low_memory=False,
            compression=None,
            dtype=dict.fromkeys(as_text, str),
        )


def _header(path: Path, separator: str) -> list[str]:
    """The names as they are written; pandas would rename the second of two alike."""
    if len(separator) != 1:
        raise DataError(f"separator must be one character, such as ';', not {quoted(separator)}")
    with open(path, encoding="utf-8-sig", newline="") as file:
        line = file.readline(HEADER)
        if len(line) == HEADER:
            raise DataError(f"{path} begins with a line of more than {HEADER} characters; its first line must be names")
        names = next(csv.reader([line], delimiter=separator), [])
    check_names(names, str(path))
    return names


def check_names(names: list[str], where: str) -> None:
    """Every column has a name of its own."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f"{where} has columns of the same name: {listed(twice)}; rename all but one of each")
    if not names:
        raise DataError(f"{where} has no columns; its first line must be their names")


def _parquet(reader: Any, path: Path) -> Any:
    from pyarrow import parquet

    check_names(parquet.read_schema(path).names, str(path))
    return reader.read_parquet(path, engine="pyarrow")
