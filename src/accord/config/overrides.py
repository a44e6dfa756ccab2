"""Changes given as `key=value`, as on the command line: `local.lr=0.05`, `algorithm.name=fedprox`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from accord.config.sections import Chosen, Problems
from accord.settings import Word, cut, is_section, parse_value, settings_of

Pair = tuple[list[str], Word]  # the parts of the key, and the value
_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def parse_sets(texts: Sequence[str], problems: Problems) -> list[Pair]:
    """Each `a.b=value` as its path and value; what cannot be read goes to `problems`."""
    pairs = []
    for text in texts:
        key, equals, value = text.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not _KEY.fullmatch(key):
            problems.add(key, f"--set {cut(text)!r}: write it as key=value, such as --set local.lr=0.05")
        else:
            pairs.append((key.split("."), Word(value, parse_value(value))))
    return pairs


def overlay(cls: type, given: Mapping[str, object], pairs: Sequence[Pair]) -> dict[str, object]:
    """`given` with the pairs on top, later ones winning.

    A pair that chooses another name for a section drops the settings `given` had for the old one: the mu of
    FedProx means nothing to FedAvg. What the section has for every name (the number of clients) stays.
    """
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in given.items()}
    names = {path[0]: word for path, word in pairs if path[1:] == ["name"]}
    for section, word in names.items():
        _forget_options(cls, merged, section, word.value if isinstance(word.value, str) else word.text)
    for path, word in pairs:
        place: dict[str, object] = merged
        for part in path[:-1]:
            below = place.get(part)
            if not isinstance(below, dict):  # not a section after all: the reader will say so
                below = place[part] = {}
            place = below
        place[path[-1]] = word
    return merged


def _forget_options(cls: type, merged: dict[str, object], section: str, name: str) -> None:
    setting = settings_of(cls).get(section)
    given = merged.get(section)
    if setting is None or not is_section(setting.type) or not issubclass(setting.type, Chosen):
        return
    common = settings_of(setting.type)
    if isinstance(given, dict) and given.get("name", common["name"].default) != name:
        merged[section] = {key: value for key, value in given.items() if key in common}
