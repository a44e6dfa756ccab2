"""The experiments and settings that come with the package, read from their TOML files and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from accord.config import RunConfig
from accord.config.load import read_toml
from accord.errors import ConfigError, nearest
from accord.papers.experiment import Column, Experiment, Place, Reading, Row, Setting, merged
from accord.papers.numbers import VALUES, Number
from accord.papers.printed import NOTHING, Printed, printed

HERE = Path(str(files("accord.papers")))
SECTIONS = frozenset(item.name for item in fields(RunConfig))  # what a row or column may change of a configuration

# Titles of the papers, in the order they are shown in.
PAPERS = {
    "fedufo": "FedUFO: unified feature learning and optimization objective alignment (ICCV 2021)",
    "report": "The report on reproducing FedUFO (Biswas and Oschatz)",
    "fedbr": "FedBR: local learning bias reduction (ICML 2023)",
    "fedmmd": "FedMMD: two-stream federated learning (2018, 2019)",
    "fedfusion": "FedFusion: feature fusion (2019)",
    "fedrane": "FedRANE: local relational augmentation and global Nash equilibrium (2023)",
    "beyond": "Beyond the papers: their methods in one another's settings, and a recipe of our own",
}
# What ids begin with, in the order they are shown in, and whose they are.
PREFIXES = {
    **{"ufo": "fedufo", "rep": "report", "br": "fedbr", "mmd": "fedmmd", "fus": "fedfusion", "rane": "fedrane"},
    **{"cross": "beyond", "own": "beyond"},
}


def names() -> list[str]:
    """Ids of all experiments, paper by paper, tables before figures."""
    found = [path.stem for path in (HERE / "experiments").glob("*.toml")]
    order = list(PREFIXES)
    return sorted(found, key=lambda id: (order.index(id.partition("-")[0]), id.partition("-")[2][:1] == "f", id))


def experiment(id: str) -> Experiment:
    """One by its id; ConfigError for an unknown one."""
    known = names()
    if id not in known:
        raise ConfigError(f"unknown experiment {id!r}.{nearest(id, known)} Allowed: {', '.join(known)}.")
    return _experiment(id)


def experiments(paper: str | None = None) -> list[Experiment]:
    """All of them, or a paper's."""
    return [one for one in map(_experiment, names()) if paper in (None, one.paper)]


@cache
def _experiment(id: str) -> Experiment:
    given = dict(read_toml(HERE / "experiments" / f"{id}.toml"))
    if "like" in given:  # another view of the same runs
        base = read_toml(HERE / "experiments" / f"{given['like']}.toml")
        given = merged(base, {"figures": [], "reading": {}}, given)
    given, change = _divided(given)  # what a figure asks of all runs, such as `evaluate.training`
    text = given.pop("reading", {}).get("text", "")
    columns = _columns([merged(change, one) for one in given.pop("column")], id)
    rows = [_row(one, columns, id) for one in given.pop("row")]
    _unique([column.key for column in columns], f"{id}: columns")
    _unique([row.name for row in rows], f"{id}: rows")
    try:
        made = Experiment(id=id, columns=columns, rows=rows, text=text, **given)
    except TypeError as error:
        raise ConfigError(f"{id}.toml: {error}") from None
    if made.paper not in PAPERS:
        raise ConfigError(f"{id}.toml: unknown paper {made.paper!r}. Allowed: {', '.join(PAPERS)}.")
    for name in (made.own, made.baseline):
        if name not in [row.name for row in rows]:
            raise ConfigError(f"{id}.toml: there is no row {name!r}")
    return made


@cache
def setting(name: str) -> Setting:
    """One by its name."""
    given = _setting(name)
    readings = [Reading(**one) for one in given.pop("reading", [])]
    try:
        return Setting(name=name, readings=readings, **given)
    except TypeError as error:
        raise ConfigError(f"{name}.toml: {error}") from None


def _setting(name: str) -> dict[str, Any]:
    """The file's content, laid over that of the one it is like.

    Readings of the same thing replace one another; those it does `without` are left out.
    """
    given = dict(read_toml(HERE / "settings" / f"{name}.toml"))
    if "like" not in given:
        return given
    base = _setting(given.pop("like"))
    known, without = {one["what"]: one for one in base.get("reading", [])}, given.pop("without", [])
    for what in without:
        if what not in known:
            raise ConfigError(f"{name}.toml: without = [{what!r}] is no reading of the setting it is like")
    kept = {what: one for what, one in known.items() if what not in without}
    readings = kept | {one["what"]: one for one in given.get("reading", [])}
    return merged(base, given, {"reading": list(readings.values())})


def _columns(given: Sequence[Mapping[str, Any]], id: str) -> list[Column]:
    made: list[Column] = []
    places: list[Place] = []
    for one in given:
        own, change = _divided(one)
        base = setting(own.pop("setting"))
        place = next((p for p in places if p.setting is base and p.change == change), None)
        if place is None:
            place = Place(own["key"] if change else base.name, base, change)
            places.append(place)
        number = Number(own.pop("metric"), own.pop("over", "last 1"), own.pop("unit", "percent"))
        own = {"group": base.title, "accuracy": base.accuracy, **own}
        _check_accuracy(own["accuracy"], f"{id}.toml, column {own.get('key')!r}")
        try:
            made.append(Column(place=place, number=number, **own))
        except TypeError as error:
            raise ConfigError(f"{id}.toml, column {own.get('key')!r}: {error}") from None
    return made


def _row(given: Mapping[str, Any], columns: Sequence[Column], id: str) -> Row:
    own, config = _divided(given)
    texts = own.pop("paper", None)
    if texts is not None and len(texts) != len(columns):
        raise ConfigError(f"{id}.toml, row {own['name']!r}: {len(texts)} numbers for {len(columns)} columns")
    numbers: dict[str, Printed] = {column.key: NOTHING for column in columns}
    if texts is not None:
        numbers = {column.key: printed(text) for column, text in zip(columns, texts, strict=True)}
    if "accuracy" in own:
        _check_accuracy(own["accuracy"], f"{id}.toml, row {own['name']!r}")
    try:
        return Row(config=config, printed=numbers, only=frozenset(own.pop("only", ())), **own)
    except TypeError as error:
        raise ConfigError(f"{id}.toml, row {own.get('name')!r}: {error}") from None


def _check_accuracy(value: str, where: str) -> None:
    if value not in VALUES:
        allowed = f"{nearest(value, VALUES)} Allowed: {', '.join(VALUES)}."
        raise ConfigError(f"{where}: accuracy = {value!r} is unknown.{allowed}")


def _divided(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What describes a row or column, and what it changes of a configuration."""
    own = {name: value for name, value in given.items() if name not in SECTIONS or name == "name"}
    return own, {name: value for name, value in given.items() if name not in own}


def _unique(values: Sequence[str], what: str) -> None:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ConfigError(f"{what}: {', '.join(twice)} more than once")
