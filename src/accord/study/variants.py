"""What is compared: algorithms, variants of one ("fedprox: mu=0.1"), and the cells of a sweep over any settings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from accord.config import RunConfig, catalog
from accord.config.sections import Chosen, declared
from accord.config.toml import literal
from accord.errors import ConfigError, nearest
from accord.settings import is_section, settings_of
from accord.study.checks import check_distinct, check_texts, several

OWN = "algorithm."
INSTEAD = {"algorithm.name": "algorithms", "seed": "seeds"}  # settings that a study has arguments for
LONGEST = 120  # characters of a folder's name before it is cut


@dataclass(frozen=True)
class Variant:
    """One row of a comparison: an algorithm, and the settings by which it differs from the common ones."""

    algorithm: str
    sets: tuple[str, ...] = ()  # as `--set` wants them

    @property
    def label(self) -> str:
        """`fedprox`, or `fedprox: mu=0.1, local.lr=0.3`."""
        said = ", ".join(text.removeprefix(OWN) for text in self.sets)
        return f"{self.algorithm}: {said}" if said else self.algorithm

    @property
    def keys(self) -> list[str]:
        """Of the settings it differs by."""
        return [key_of(text) for text in self.sets]


@dataclass(frozen=True)
class Axis:
    """One setting with the values it takes in turn."""

    key: str
    values: tuple[str, ...]


def key_of(text: str) -> str:
    """`local.lr` of `local.lr = 0.1`."""
    return text.partition("=")[0].strip()


def folder_name(label: str) -> str:
    """A label as a part of a folder's name; what cannot stand there is told apart by a digest."""
    plain = re.sub(r"[:,] ", ",", label)
    safe = re.sub(r"[^\w.+=,@-]", "_", plain)
    if safe == plain and len(safe.encode()) <= LONGEST:
        return safe
    return f"{safe[: LONGEST // 4]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def read_variant(text: str) -> Variant:
    """`fedprox`, `fedprox: mu=0.1`, `fedprox: mu=0.1, local.lr=0.3`: own settings by their names, others in full."""
    name, colon, rest = (part.strip() for part in text.partition(":"))
    registry = catalog.registry("algorithm")
    if name not in registry:
        raise ConfigError(f"algorithms: unknown {name!r}.{nearest(name, registry)} Allowed: {', '.join(registry)}.")
    own = declared(settings_of(RunConfig)["algorithm"].type, catalog.registry, name)
    sets = []
    for item in split(rest):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value:
            raise ConfigError(f"algorithms: {text!r}: write settings as key=value, such as {name}: mu=0.1")
        if key in own:
            key = OWN + key
        elif "." not in key and key not in settings_of(RunConfig):
            raise ConfigError(
                f"algorithms: {text!r}: {name} has no setting {key!r}.{nearest(key, own)} Its own: "
                f"{', '.join(own) or 'none'}; others are written in full, such as local.lr=0.1"
            )
        sets.append(f"{key}={value}")
    if colon and not sets:
        raise ConfigError(f"algorithms: {text!r}: settings are missing behind the colon")
    check_keys([key_of(item) for item in sets], f"algorithms: {text!r}")
    return Variant(name, tuple(sets))


def read_sweep(sweep: Mapping[str, Iterable[Any]] | Iterable[str]) -> list[Axis]:
    """`{"algorithm.mu": [0.1, 1]}`, or texts such as `algorithm.mu=0.1,1`."""
    axes = []
    if isinstance(sweep, Mapping):
        for key, values in sweep.items():
            listed = several(values, f"sweep {key}")
            axes.append(Axis(str(key), tuple(v if isinstance(v, str) else literal(v) for v in listed)))
    else:
        texts = several(sweep, "sweep")
        check_texts(texts, "sweep")
        for text in texts:
            key, equals, values = text.partition("=")
            if not equals:
                raise ConfigError(f"sweep {text!r}: write it as key=value,value, such as algorithm.mu=0.01,0.1")
            axes.append(Axis(key.strip(), tuple(split(values))))
    for axis in axes:
        check_distinct(axis.values, f"sweep {axis.key}")
    check_keys([axis.key for axis in axes], "sweep")
    return axes


def check_keys(keys: Sequence[str], what: str) -> None:
    """Refuse what is there twice, and what a study has arguments for."""
    for key in keys:
        if key in INSTEAD:
            raise ConfigError(f"{what}: {key} has no place there: use --{INSTEAD[key]} ({INSTEAD[key]}=...)")
        if keys.count(key) > 1:
            raise ConfigError(f"{what}: {key} is there more than once")


def split(text: str) -> list[str]:
    """The items between commas that are in no brackets or quotes.

    >>> split('[4, 4],[8], "a,b"')
    ['[4, 4]', '[8]', '"a,b"']
    """
    items, depth, quote = [""], 0, ""
    for letter in text:
        if letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
        depth += (letter in "[{") - (letter in "]}") if not quote else 0
        if letter == "," and not depth and not quote:
            items.append("")
        else:
            items[-1] += letter
    return [item.strip() for item in items if item.strip()]


def has_setting(key: str, chosen: Callable[[str], str | None]) -> bool:
    """Whether a setting is one of those that what is chosen in its section has.

    `partition.clients` is everybody's, `partition.alpha` not. `chosen` gives the section's name, None where its default
    stands. What is no setting at all is left to whoever reads the configuration.
    """
    section, _, name = key.partition(".")
    setting = settings_of(RunConfig).get(section)
    if setting is None or not is_section(setting.type) or not issubclass(setting.type, Chosen):
        return True
    common, named = settings_of(setting.type), chosen(section)
    if named in (None, setting.type.unsaid) and name in setting.type.implied:
        return True
    return name in common or name in declared(setting.type, catalog.registry, named or common["name"].default)


def cells(variant: Variant, axes: Sequence[Axis]) -> list[Variant]:
    """All combinations of the axes' values."""
    lists = [[f"{axis.key}={value}" for value in axis.values] for axis in axes]
    return [Variant(variant.algorithm, (*variant.sets, *sets)) for sets in product(*lists)]
