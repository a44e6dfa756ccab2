"""From nested dictionaries to frozen dataclasses, with every problem found in one pass.

A section is a dataclass. What others declare for it stands in its `options`:
- a `Chosen` section has a `name` that picks a factory from a registry, and the factory's settings are its keys too;
- a `Gathered` section has one more key for every entry of a registry that has a `setting` (`evaluate.drift`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from accord.errors import ConfigError, nearest
from accord.settings import REQUIRED, Factory, Misfit, Setting, cut, fit, is_section, settings_of, show

T = TypeVar("T")
SHOWN = 20  # problems that one error lists
Lookup = Callable[[str], Mapping[str, Any]]  # kind -> its registry


@dataclass(frozen=True)
class Chosen:
    """Base of the sections whose keys depend on their `name`."""

    kind: ClassVar[str]
    implied: ClassVar[Mapping[str, str]] = {}  # keys that say which name is meant where none is given
    unsaid: ClassVar[str] = ""  # a name that is as good as none


@dataclass(frozen=True)
class Gathered:
    """Base of the sections that have a key for every entry of a registry."""

    kind: ClassVar[str]


@dataclass
class Problems:
    """What is wrong so far, and with which keys (checks across keys skip those)."""

    messages: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def add(self, key: str, message: str) -> None:
        """Note one problem."""
        self.messages.append(message)
        self.keys.add(key)

    def raise_if_any(self, source: str = "") -> None:
        """All of them in one ConfigError."""
        if self.messages:
            count = "a problem" if len(self.messages) == 1 else f"{len(self.messages)} problems"
            where = f" {source}" if source else ""
            lines = "".join(f"\n  {message}" for message in self.messages[:SHOWN])
            lines += f"\n  and {len(self.messages) - SHOWN} more" if len(self.messages) > SHOWN else ""
            raise ConfigError(f"{count} in the configuration{where}:{lines}")


def own_settings(section: type, factory: Factory) -> dict[str, Setting]:
    """A factory's settings, without those the section itself has (they reach the factory another way)."""
    taken = settings_of(section)
    return {name: s for name, s in settings_of(factory).items() if name not in taken}


def declared(section: type, lookup: Lookup, name: str = "") -> dict[str, Setting]:
    """The settings others declare for a section: the chosen factory's, or those of all entries of its registry."""
    if issubclass(section, Chosen):
        registry = lookup(section.kind)
        return own_settings(section, registry[name]) if name in registry else {}
    if issubclass(section, Gathered):
        entries = lookup(section.kind).values()
        return {entry.setting.name: entry.setting for entry in entries if entry.setting is not None}
    return {}


def read(cls: type, given: Mapping[str, object], lookup: Lookup, problems: Problems) -> dict[str, Any]:
    """The arguments of `cls` from `given`; what is wrong goes to `problems` and its default is used instead."""
    return _Reader(lookup, problems, _homes(cls)).values(cls, given, "")


def as_given(section: Any) -> dict[str, object]:
    """What would have been given for a section made in Python."""
    values = {item.name: getattr(section, item.name) for item in fields(section)}
    options = values.pop("options", {})
    return {key: as_given(value) if is_section(type(value)) else value for key, value in {**values, **options}.items()}


def _homes(cls: type, prefix: str = "") -> dict[str, str]:
    """Where each key lives, for hints about keys written in the wrong section."""
    homes: dict[str, str] = {}
    for name, setting in settings_of(cls).items():
        if is_section(setting.type):
            homes = {**_homes(setting.type, f"{name}."), **homes}
        elif name not in ("name", "seed"):  # these are in several sections
            homes[name] = prefix + name
    return homes


@dataclass(frozen=True)
class _Reader:
    lookup: Lookup
    problems: Problems
    homes: Mapping[str, str]

    def values(self, cls: type, given: Mapping[str, object], prefix: str) -> dict[str, Any]:
        """The arguments of one section, those below it made."""
        settings = settings_of(cls)
        values: dict[str, Any] = {}
        for name, setting in settings.items():
            if is_section(setting.type):
                values[name] = self._below(setting.type, given.get(name, {}), prefix + name)
            elif name in given:
                self._value(setting, given[name], prefix + name, values)
        rest = {str(key): value for key, value in given.items() if key not in settings}
        if issubclass(cls, Chosen):
            meant = [name for key, name in cls.implied.items() if key in rest]
            if meant and values.get("name", cls.unsaid) == cls.unsaid:
                values["name"] = meant[0]
            name = values.get("name", settings["name"].default)
            values["options"] = self._chosen(cls, name, rest, prefix)
        elif issubclass(cls, Gathered):
            values["options"] = self._options(declared(cls, self.lookup), rest, prefix, list(settings), "", "")
        else:
            self._unknown(rest, prefix, list(settings), "")
        return values

    def _below(self, cls: type[T], given: object, key: str) -> T:
        if isinstance(given, Mapping):
            return cls(**self.values(cls, given, key + "."))
        example = f"{key}.{next(iter(settings_of(cls)))}"
        self.problems.add(key, f"{key} = {show(given)}: {key} is a section; set its keys, such as {example}")
        return cls()

    def _value(self, setting: Setting, given: object, key: str, values: dict[str, Any]) -> None:
        try:
            value = fit(setting.type, given, setting.bounds)
        except Misfit as misfit:
            self.problems.add(key, f"{key} = {show(given)}: {misfit}")
            return
        if setting.named is not None:
            allowed = [*setting.named.also, *self.lookup(setting.named.kind)]
            if value not in allowed:
                self._no_such(key, value, setting.named.kind, allowed)
                return
        values[setting.name] = value

    def _chosen(self, cls: type[Chosen], name: str, given: Mapping[str, object], prefix: str) -> dict[str, Any]:
        registry = self.lookup(cls.kind)
        key = prefix + "name"
        if key in self.problems.keys:
            return {}  # without a name there is nothing to check the other keys against
        if name not in registry:
            self._no_such(key, name, cls.kind, list(registry))
            return {}
        rest = dict(given)
        for word in set(rest) & set(cls.implied) - set(declared(cls, self.lookup, name)):
            full, whose = prefix + word, cls.implied[word]
            self.problems.add(full, f"{full} belongs to the {cls.kind} {whose}, not to {name}: set {key}={whose}")
            del rest[word]
        settings = declared(cls, self.lookup, name)
        known = [*settings_of(cls), *(cls.implied if name == cls.unsaid else ())]
        return self._options(settings, rest, prefix, known, f" of the {cls.kind} {name}", f"the {cls.kind} {name}")

    def _options(
        self,
        settings: Mapping[str, Setting],
        given: Mapping[str, object],
        prefix: str,
        others: list[str],
        whose: str,
        who: str,
    ) -> dict[str, Any]:
        values = {s.name: s.default for s in settings.values() if s.default is not REQUIRED}
        for setting in settings.values():
            if setting.name in given:
                self._value(setting, given[setting.name], prefix + setting.name, values)
            elif setting.default is REQUIRED:
                full = prefix + setting.name
                self.problems.add(full, f"{full} is required by {who}: {setting.allowed}")
        self._unknown({k: v for k, v in given.items() if k not in settings}, prefix, [*others, *settings], whose)
        return values

    def _no_such(self, key: str, name: object, kind: str, allowed: list[str]) -> None:
        hint = nearest(str(name), allowed)
        self.problems.add(key, f"{key} = {show(name)}: unknown {kind}.{hint} Allowed: {', '.join(allowed)}")

    def _unknown(self, given: Mapping[str, object], prefix: str, allowed: list[str], whose: str) -> None:
        for name in given:
            key = prefix + name
            home = self.homes.get(name)
            hint = f" Did you mean {home!r}?" if home else nearest(name, allowed)
            self.problems.add(key, f"{cut(key)}: unknown key{whose}.{hint} Allowed: {', '.join(allowed)}")
