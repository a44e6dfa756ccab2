"""What a setting is, which settings something has, and the one check they are all held to.

A setting is a dataclass's field or a factory's argument: keyword-only ones, and others annotated with `Annotated`.
A factory with many may take them as one value: an argument `settings` whose type is a dataclass. It is called with
the settings by name all the same.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np

from accord.errors import ConfigError, nearest
from accord.settings.bounds import Named, Range, Search
from accord.settings.values import Misfit, expected, fit, show

Factory = Callable[..., Any]
VALUE = "settings"
REQUIRED = MISSING


@dataclass(frozen=True)
class Setting:
    """One key: its type, default, bounds, where to search, and what it means."""

    name: str
    type: Any
    default: Any = REQUIRED
    bounds: Range | None = None
    search: Search | None = None
    named: Named | None = None
    doc: str = ""

    @property
    def allowed(self) -> str:
        """Type and bounds in words."""
        return expected(self.type) + (f", {self.bounds}" if self.bounds is not None else "")


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
        if item.name != "options":  # where sections keep what others declare
            default = item.default if item.default_factory is MISSING else item.default_factory()
            settings[item.name] = _setting(item.name, hints[item.name], default)
    return settings


def value_of(factory: Factory) -> type | None:
    """The dataclass a factory wants its settings in, if it does."""
    function: Any = _function(factory)
    if VALUE not in function.__annotations__:
        return None
    kind = _hint(function, VALUE)
    return kind if is_section(kind) else None


def _function(factory: Factory) -> Any:
    function: Any = inspect.unwrap(factory)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    return vars(function)["__init__"] if isinstance(function, type) else function


def _hint(function: Any, name: str) -> Any:
    # One annotation at a time: the other arguments may have types imported for type checkers alone.
    holder = types.SimpleNamespace(__annotations__={"_": function.__annotations__[name]})
    return get_type_hints(holder, globalns=function.__globals__, include_extras=True)["_"]


def _factory_settings(factory: Factory) -> dict[str, Setting]:
    function = _function(factory)
    value = value_of(factory)
    settings = dict(_settings_of(value)) if value else {}
    for parameter in inspect.signature(factory).parameters.values():
        alone = parameter.kind is parameter.KEYWORD_ONLY
        if parameter.name in function.__annotations__ and (alone or parameter.default is not parameter.empty):
            hint = _hint(function, parameter.name)
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
        named=next((n for n in notes if isinstance(n, Named)), None),
        doc=" ".join(" ".join(n.split()) for n in notes if isinstance(n, str)),
    )


def is_section(kind: Any) -> bool:
    """Whether a field's type is a dataclass, that is, a section of its own."""
    return isinstance(kind, type) and is_dataclass(kind)


def check(what: str, settings: Mapping[str, Setting], given: Mapping[str, object]) -> dict[str, Any]:
    """The given values as their settings want them; a ConfigError says which one does not fit, and why.

    The rules are those of a configuration file, for values that come from Python.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in settings:
            allowed = f"Allowed: {', '.join(settings)}." if settings else "It has no settings."
            raise ConfigError(f"{what} has no setting {name!r}.{nearest(name, settings)} {allowed}")
        try:
            plain = value.item() if isinstance(value, np.generic) else value
            values[name] = fit(settings[name].type, plain, settings[name].bounds)
        except Misfit as misfit:
            raise ConfigError(f"{what}: {name} = {show(value)}: {misfit}") from None
    return values
