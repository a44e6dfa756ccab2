"""What a page shows of single runs and single clients, as far as a run has it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.config.load import read_toml
from accord.engine.identity import FILE as IDENTITY
from accord.engine.sites import DIVISION
from accord.errors import DataError
from accord.measures.sites import Sites
from accord.report.page.history import History, chosen
from accord.wire.files import read_here
from accord.wire.records import Bounds, parse

Values = dict[str, Any]
BOUNDS = Bounds(size=1 << 26, depth=8, entries=1 << 23)
LARGEST_CARD = 1 << 16


@dataclass(frozen=True)
class Known:
    """What a run was before it began."""

    folder: str
    algorithm: str
    dataset: str
    rounds: int
    seed: int
    settings: str  # its config.toml
    card: str  # its model's card, if it has one


@functools.lru_cache(maxsize=4096)
def facts(folder: Path) -> Known:
    """From a run's configuration, and its model's card."""
    values = read_toml(folder / "config.toml")
    text = (folder / "config.toml").read_text(encoding="utf-8")
    card = folder / "model" / "README.md"
    try:
        identity = parse(read_here(folder / IDENTITY, BOUNDS.size), BOUNDS, "it")
        dataset = str(identity["data"]["name"])
    except (DataError, OSError, KeyError, TypeError):
        dataset = str(values.get("data", {}).get("name", "data"))
    return Known(
        str(folder),
        str(values.get("algorithm", {}).get("name", "?")),
        dataset,
        int(values.get("rounds", 0)),
        int(values.get("seed", 0)),
        text,
        card.read_text(encoding="utf-8", errors="replace")[:LARGEST_CARD] if card.is_file() else "",
    )


@dataclass(frozen=True)
class Division:
    """What the sites hold: the same for all runs of one seed and partition."""

    sites: Sites
    classes: tuple[str, ...]  # nothing where labels are no classes, or there are too many
    counts: tuple[tuple[int, ...], ...]  # by site and class

    @functools.cached_property
    def key(self) -> str:
        """The same for equal divisions."""
        told = json.dumps(self.as_values(), sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:12]

    def as_values(self) -> Values:
        """Names, sizes and class counts of the sites."""
        apart = {name: self.sites.columns[name] for name in ("site", "samples", "test_samples", "class")}
        return {**apart, "classes": list(self.classes), "counts": [list(row) for row in self.counts]}


def division_of(folder: Path, sites: Sites | None) -> Division | None:
    """From a run's table of sites, and its class counts where it has some."""
    if sites is None:
        return None
    try:
        record = parse(read_here(folder / DIVISION, BOUNDS.size), BOUNDS, DIVISION)
        classes = tuple(str(name) for name in record["classes"])
        counts = tuple(tuple(int(n) for n in row) for row in record["counts"])
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        classes, counts = (), ()
    if len(counts) != len(sites) or any(len(row) != len(classes) for row in counts):
        classes, counts = (), ()
    return Division(sites, classes, counts)


def confusion(summary: Mapping[str, Any]) -> Values | None:
    """Counts by true and by named class."""
    found = summary.get("confusion")
    return dict(found) if isinstance(found, Mapping) else None


def calibration(summary: Mapping[str, Any]) -> Values | None:
    """How often a model is right, by how sure it is."""
    found = summary.get("calibration")
    return dict(found) if isinstance(found, Mapping) else None


def drift(history: History, cells: int) -> Values | None:
    """The cosine of each client's update with the server's step, by client and round: as many rounds as fit."""
    known = [
        (int(record["round"]), record["cohort"], record["drift"]["clients"])
        for record in history.records
        if isinstance(record.get("drift"), Mapping)
        and len(record["drift"].get("clients", ())) == len(record.get("cohort", ())) > 0
    ]
    if not known:
        return None
    widest = max(len(cohort) for _, cohort, _ in known)
    drawn = chosen(len(known), max(2, min(80, cells // max(widest, 1))))
    kept = [known[i] for i in sorted(drawn)]
    return {
        "rounds": [round for round, _, _ in kept],
        "cells": [
            [client, column, round(value, 3)]
            for column, (_, cohort, values) in enumerate(kept)
            for client, value in zip(cohort, values, strict=True)
        ],
    }


def history_of(history: History, cells: int) -> Values | None:
    """How each client fared over the rounds: as many of them as fit."""
    known = [(int(record["round"]), record["each_client"]) for record in history.records if "each_client" in record]
    if not known:
        return None
    drawn = sorted(chosen(len(known), max(2, min(100, cells // max(len(known[0][1]), 1)))))
    return {"rounds": [known[i][0] for i in drawn], "values": [known[i][1] for i in drawn]}


def failures(summary: Mapping[str, Any], history: History) -> list[Values]:
    """Who was left out, how often and why: of a run that goes on, in the rounds that were read."""
    if summary:
        left_out = summary.get("left_out") or {}
        return [{"site": site, "times": entry["times"], "why": entry["why"]} for site, entry in left_out.items()]
    found: dict[str, Values] = {}
    for record in history.records:
        for site, why in (record.get("missing") or {}).items():
            entry = found.setdefault(site, {"site": site, "times": 0, "why": why})
            entry["times"] += 1
    return list(found.values())
