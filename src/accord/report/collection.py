"""Runs that exist, wherever they lie: found below folders, and named by the settings in which they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from accord.config.load import read_toml
from accord.config.toml import literal
from accord.errors import DataError
from accord.report.runs import read_summary

# Settings that change where or how fast a run happens, or what is kept of it, but not what comes out of it.
APART = ("seed", "name", "out", "device", "executor", "workers", "log", "checkpoint", "data.dir", "data.download")
TRIALS = "tune"  # the folder of a search, whose runs are judged on validation data

Found = dict[tuple[str, int], dict[str, Any]]


def collect(places: Iterable[Path | str]) -> Found:
    """The summaries of all finished runs in or below these folders, by label and seed.

    A label is the algorithm and the settings in which the runs differ; two runs of one label and seed are an error.
    """
    folders = list(dict.fromkeys(folder for place in places for folder in runs_below(Path(place))))
    summaries = {folder: read_summary(folder) for folder in folders}
    found: Found = {}
    where: dict[tuple[str, int], Path] = {}
    for folder, label in labels(summaries).items():
        summary = summaries[folder]
        key = label, int(summary["seed"])
        if key in found:
            raise DataError(
                f"{where[key]} and {folder} have the same settings and seed ({key[0]}, seed {key[1]}): name only one"
            )
        found[key], where[key] = summary, folder
    return found


def labels(summaries: Mapping[Path, Mapping[str, Any]]) -> dict[Path, str]:
    """What each run is called: its algorithm, and the settings in which it differs from the others.

    A run that goes on has no summary, and an empty one here.
    """
    settings = {folder: dict(_flat(read_toml(folder / "config.toml"))) for folder in summaries}
    for folder, values in settings.items():  # of data that was given, the configuration does not know the name
        values["data.name"] = summaries[folder].get("dataset", values.get("data.name"))
    differing = _differing(settings.values())
    return {folder: _label(values, differing) for folder, values in settings.items()}


def runs_below(place: Path, *, finished: bool = True) -> Iterator[Path]:
    """The folders of runs, finished ones or all; DataError where there are none. Trials of a search are left out."""
    if not place.is_dir():
        raise DataError(f"{place}: there is no such folder; name folders of runs or of comparisons")
    sign, other = ("summary.json", "config.toml") if finished else ("identity.json", "config.toml")
    found = [
        path.parent
        for path in sorted(place.rglob(sign))
        if (path.parent / other).is_file() and TRIALS not in path.relative_to(place).parts[:-2]
    ]
    if not found:
        raise DataError(f"{place} holds no {'finished ' if finished else ''}run: one has a file {sign} and a {other}")
    yield from found


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if f"{prefix}{name}" in APART:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _differing(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Keys with more than one value; an algorithm's own only where runs of the same algorithm differ in them."""
    seen: dict[tuple[str, str], set[str]] = {}
    for values in runs:
        for key, value in values.items():
            whose = str(values.get("algorithm.name")) if key.startswith("algorithm.") else ""
            seen.setdefault((whose, key), set()).add(literal(value))
    return list(dict.fromkeys(key for (_, key), texts in seen.items() if len(texts) > 1 and key != "algorithm.name"))


def _label(values: Mapping[str, Any], differing: Iterable[str]) -> str:
    said = [f"{key.removeprefix('algorithm.')}={_text(values[key])}" for key in differing if key in values]
    name = str(values.get("algorithm.name", "run"))
    return f"{name}: {', '.join(said)}" if said else name


def _text(value: Any) -> str:
    return value if isinstance(value, str) else literal(value)
