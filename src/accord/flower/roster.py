"""Who belongs to a run: sites by name, numbered in the order of their names once and for all.

The roster lies in the run's folder (`federation.json`) from the start: a run that goes on has the same sites with the
same numbers, whatever Flower calls their nodes by then. A site that was named but came late takes part from the round
after it came. Nobody else is let in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from accord.engine.files import write_atomic
from accord.errors import CheckpointError, DataError, RunError
from accord.flower.facts import SiteFacts, check_alike
from accord.flower.protocol import RUN, SITE, WHOLE
from accord.wire.files import read_here
from accord.wire.records import SHA256, Bounds, Field, check, parse, shown

FILE = "federation.json"
FORMAT = 1
BOUNDS = Bounds(size=1 << 28, depth=16, entries=1 << 23)
FIELDS = {
    "format": Field(lambda value: value == FORMAT, str(FORMAT)),
    "run": RUN,
    "sites": Field(lambda value: isinstance(value, list) and len(value) > 0, "a list of sites"),
}
SITE_FIELDS = {
    "site": SITE,
    "mark": Field(lambda value: value == "" or SHA256.fits(value), "64 hexadecimal digits, or nothing"),
    "since": WHOLE,
    "facts": Field(lambda value: value is None or isinstance(value, dict), "facts, or null"),
}


@dataclass(frozen=True)
class Entry:
    """One site of a run."""

    site: str
    mark: str = ""  # what its node is known by; nothing: it never came
    since: int = 0  # the first round, counted from 0, it may be asked in
    facts: SiteFacts | None = None


@dataclass
class Roster:
    """The sites of a run, in the order of their numbers."""

    run: str
    entries: list[Entry]
    path: Path | None = None
    _numbers: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = {entry.site: number for number, entry in enumerate(self.entries)}

    @classmethod
    def begun(cls, run: str, found: Mapping[str, Entry], named: Sequence[str]) -> Roster:
        """Of a new run: those found, and those that were named and have not come yet."""
        sites = sorted({*found, *named})
        return cls(run, [found.get(site, Entry(site)) for site in sites])

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, site: object) -> bool:
        return site in self._numbers

    def number(self, site: str) -> int:
        """The client's number."""
        return self._numbers[site]

    def name_of(self, client: int) -> str:
        """The site's name."""
        return self.entries[client].site

    @property
    def known(self) -> dict[str, SiteFacts]:
        """The facts of those that came; all have the same form as the first."""
        return {entry.site: entry.facts for entry in self.entries if entry.facts is not None}

    def complete(self) -> dict[str, SiteFacts]:
        """Facts of all; of those that have not come, that they have nothing yet."""
        first = next(iter(self.known.values()))
        nothing = replace(first, samples=0, test_samples=0, labels={})
        return {entry.site: entry.facts or nothing for entry in self.entries}

    def sizes(self, round: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """[K] training samples, none of those that come later."""
        counts = [e.facts.samples if e.facts is not None and e.since <= round else 0 for e in self.entries]
        return np.array(counts, dtype=np.int64)

    def refusal(self, site: str, mark: str, facts: SiteFacts) -> str:
        """Why a node that calls itself so is not let in; empty: it is."""
        if site not in self:
            return f"{site!r} is not on the roster of this run, which was fixed when it began"
        entry = self.entries[self.number(site)]
        if entry.mark and entry.mark != mark:
            return f"it calls itself {site!r}, but is not the node that came by this name first"
        if entry.facts is not None and facts != entry.facts:
            return f"the data of {site!r} is not what it was when the run began"
        try:
            check_alike(next(iter(self.known.values())), facts, f"site {site!r}")
        except DataError as error:
            return str(error)
        return ""

    def admit(self, site: str, mark: str, facts: SiteFacts, since: int) -> bool:
        """Take in a site that was named and has come; whether it is new."""
        number = self.number(site)
        if self.entries[number].facts is not None:
            return False
        self.entries[number] = Entry(site, mark, since, facts)
        self.save()
        return True

    def save(self) -> None:
        """Into the run's folder."""
        if self.path is not None:
            write_atomic(self.path, self.text())

    def text(self) -> str:
        """As it is written."""
        sites = [
            {
                "site": entry.site,
                "mark": entry.mark,
                "since": entry.since,
                "facts": None if entry.facts is None else entry.facts.to_json(),
            }
            for entry in self.entries
        ]
        record = {"format": FORMAT, "run": self.run, "sites": sites}
        return json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"


def read_roster(folder: Path) -> Roster:
    """Of a run that has begun."""
    path = folder / FILE
    try:
        record = parse(read_here(path, BOUNDS.size), BOUNDS, FILE)
        check(record, FIELDS, FILE)
        entries = [_entry(one) for one in record["sites"]]
    except (OSError, DataError, RunError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}), so it is not known which sites this run began with: restore the file, "
            "or start a new run"
        ) from error
    return Roster(record["run"], entries, path)


def _entry(record: Any) -> Entry:
    if not isinstance(record, dict):
        raise DataError(f"{FILE}: {shown(record)} is no site")
    check(record, SITE_FIELDS, FILE)
    facts = record["facts"]
    known = None if facts is None else SiteFacts.from_json(facts, f"site {record['site']!r}")
    return Entry(record["site"], record["mark"], record["since"], known)
