"""From nested dictionaries to frozen dataclasses, with every problem found in one pass.

A section is a dataclass. A `Chosen` section has a `name` that picks a factory from a registry; the factory's
settings (its keyword-only arguments, and others annotated with `Annotated`) are then keys of the section too,
checked like the others and kept in `options`.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from accord.config.values import Misfit, expected, fit, show
from accord.errors import ConfigError, nearest
from accord.settings import Range, Search

T = TypeVar("T")
Factory = Callable[..., Any]
Lookup = Callable[[str], Mapping[str, Factory]]  # kind -> its registry
REQUIRED = MISSING


@dataclass(frozen=True)
class Setting:
    """One key: its type, default, bounds, where to search, and what it means."""

    name: str
    type: Any
    default: Any = REQUIRED
    bounds: Range | None = None
    search: Search | None = None
    doc: str = ""

    @property
    def allowed(self) -> str:
        """Type and bounds in words."""
        return expected(self.type) + (f", {self.bounds}" if self.bounds is not None else "")


@dataclass(frozen=True)
class Chosen:
    """Base of the sections whose keys depend on their `name`."""

    kind: ClassVar[str]
    implied: ClassVar[Mapping[str, str]] = {}  # keys that say which name is meant where none is given


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
            lines = "".join(f"\n  {message}" for message in self.messages)
            raise ConfigError(f"{count} in the configuration{where}:{lines}")


def settings_of(target: type | Factory) -> Mapping[str, Setting]:
    """The settings of a section (a dataclass's fields) or of a factory (see the top of this file)."""
    key: Any = target
    return _settings_of(key)


@functools.cache  # annotations are text until they are evaluated, and that is slow
def _settings_of(target: Any) -> Mapping[str, Setting]:
    if not (isinstance(target, type) and is_dataclass(target)):
        return _factory_settings(target)
    hints = get_type_hints(target, include_extras=True)
    settings = {}
    for item in fields(target):
        if not (issubclass(target, Chosen) and item.name == "options"):
            default = item.default if item.default_factory is MISSING else item.default_factory()
            settings[item.name] = _setting(item.name, hints[item.name], default)
    return settings


def _factory_settings(factory: Factory) -> dict[str, Setting]:
    function: Any = inspect.unwrap(factory)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    if isinstance(function, type):
        function = vars(function)["__init__"]
    settings = {}
    for parameter in inspect.signature(factory).parameters.values():
        alone = parameter.kind is parameter.KEYWORD_ONLY
        if parameter.name in function.__annotations__ and (alone or parameter.default is not parameter.empty):
            # one annotation at a time: the other arguments may have types imported for type checkers alone
            holder = types.SimpleNamespace(__annotations__={"_": function.__annotations__[parameter.name]})
            hint = get_type_hints(holder, globalns=function.__globals__, include_extras=True)["_"]
            if alone or get_origin(hint) is Annotated:
                default = REQUIRED if parameter.default is parameter.empty else parameter.default
                settings[parameter.name] = _setting(parameter.name, hint, default)
    return settings


def _setting(name: str, annotation: Any, default: Any) -> Setting:
    if get_origin(annotation) is not Annotated:
        return Setting(name, annotation, default)
    kind, *notes = get_args(annotation)
    return Setting(
        name,
        kind,
        default,
        bounds=next((n for n in notes if isinstance(n, Range)), None),
        search=next((n for n in notes if isinstance(n, Search)), None),
        doc=" ".join(" ".join(n.split()) for n in notes if isinstance(n, str)),
    )


def is_section(kind: Any) -> bool:
    """Whether a field's type is a dataclass, that is, a section of its own."""
    return isinstance(kind, type) and is_dataclass(kind)


def own_settings(section: type, factory: Factory) -> dict[str, Setting]:
    """A factory's settings, without those the section itself has (they reach the factory another way)."""
    taken = settings_of(section)
    return {name: s for name, s in settings_of(factory).items() if name not in taken}


def read(cls: type[T], given: Mapping[str, object], lookup: Lookup, problems: Problems) -> T:
    """An instance of `cls` from `given`; what is wrong goes to `problems` and its default is used instead."""
    return _Reader(lookup, problems, _homes(cls)).section(cls, given, "")


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

    def section(self, cls: type[T], given: Mapping[str, object], prefix: str) -> T:
        """One section and those below it."""
        settings = settings_of(cls)
        values: dict[str, Any] = {}
        for name, setting in settings.items():
            if is_section(setting.type):
                values[name] = self._below(setting.type, given.get(name, {}), prefix + name)
            elif name in given:
                self._value(setting, given[name], prefix + name, values)
        rest = {str(key): value for key, value in given.items() if key not in settings}
        if issubclass(cls, Chosen):
            meant = [name for key, name in cls.implied.items() if key in rest and "name" not in given]
            if meant:
                values["name"] = meant[0]
            name = values.get("name", settings["name"].default)
            values["options"] = self._options(cls, name, rest, prefix)
        else:
            self._unknown(rest, prefix, list(settings), "")
        return cls(**values)

    def _below(self, cls: type[T], given: object, key: str) -> T:
        if isinstance(given, Mapping):
            return self.section(cls, given, key + ".")
        example = f"{key}.{next(iter(settings_of(cls)))}"
        self.problems.add(key, f"{key} = {show(given)}: {key} is a section; set its keys, such as {example}")
        return cls()

    def _value(self, setting: Setting, given: object, key: str, values: dict[str, Any]) -> None:
        try:
            values[setting.name] = fit(setting.type, given, setting.bounds)
        except Misfit as misfit:
            self.problems.add(key, f"{key} = {show(given)}: {misfit}")

    def _options(self, cls: type[Chosen], name: str, given: Mapping[str, object], prefix: str) -> dict[str, Any]:
        registry = self.lookup(cls.kind)
        key = prefix + "name"
        if key in self.problems.keys:
            return {}  # without a name there is nothing to check the other keys against
        if name not in registry:
            allowed = ", ".join(registry)
            hint = nearest(name, registry)
            self.problems.add(key, f"{key} = {show(name)}: unknown {cls.kind}.{hint} Allowed: {allowed}")
            return {}
        settings = own_settings(cls, registry[name])
        values = {s.name: s.default for s in settings.values() if s.default is not REQUIRED}
        for setting in settings.values():
            if setting.name in given:
                self._value(setting, given[setting.name], prefix + setting.name, values)
            elif setting.default is REQUIRED:
                full = prefix + setting.name
                self.problems.add(full, f"{full} is required by the {cls.kind} {name}: {setting.allowed}")
        unknown = {k: v for k, v in given.items() if k not in settings}
        for word in set(unknown) & set(cls.implied):
            full, whose = prefix + word, cls.implied[word]
            self.problems.add(full, f"{full} belongs to the {cls.kind} {whose}, not to {name}: set {key}={whose}")
            del unknown[word]
        self._unknown(unknown, prefix, [*settings_of(cls), *settings], f" of the {cls.kind} {name}")
        return values

    def _unknown(self, given: Mapping[str, object], prefix: str, allowed: list[str], whose: str) -> None:
        for name in given:
            key = prefix + name
            home = self.homes.get(name)
            hint = f" Did you mean {home!r}?" if home else nearest(name, allowed)
            self.problems.add(key, f"{key}: unknown key{whose}.{hint} Allowed: {', '.join(allowed)}")
