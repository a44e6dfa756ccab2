"""Things chosen by name. What is registered is checked whenever it is called, whoever calls it."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from accord.errors import ConfigError, nearest
from accord.settings import plugins
from accord.settings.schema import VALUE, check, settings_of, value_of

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Names to entries, in the order they were added; an unknown name is an error with the nearest match.

    `home` is a package whose modules register their entries when they are imported: all of them are, when the
    registry is first looked into, so that a new entry is one new file. Plugins (`accord.settings.plugins`) come after
    them. `order` gives an entry's place among the others by its name and facts, whenever it was added.
    """

    def __init__(self, kind: str, home: str = "", order: Callable[[str, Mapping[str, Any]], Any] | None = None) -> None:
        self.kind = kind
        self._home = home
        self._order = order
        self._entries: dict[str, T] = {}
        self._facts: dict[str, Mapping[str, Any]] = {}
        self._complete = False

    def add(self, name: str, **facts: Any) -> Callable[[T], T]:
        """Decorator that registers an entry under `name`, with `facts` others may ask for.

        A function is given back with its settings checked at every call.
        """

        def register(entry: T) -> T:
            if self._home and not str(getattr(entry, "__module__", "")).startswith(self._home):
                self._own()  # one from elsewhere must not take the name of one that is not imported yet
            if name in self._entries:
                raise ConfigError(f"the {self.kind} {name!r} is registered already; choose another name")
            if inspect.isfunction(entry):
                entry = cast(T, checked(entry, f"{self.kind} {name!r}"))
            self._entries[name] = entry
            self._facts[name] = facts
            if order := self._order:
                names = sorted(self._entries, key=lambda known: order(known, self._facts[known]))
                self._entries = {known: self._entries[known] for known in names}
            return entry

        return register

    def facts(self, name: str) -> Mapping[str, Any]:
        """What was said about an entry when it was registered."""
        self[name]
        return self._facts[name]

    def __getitem__(self, name: str) -> T:
        entries = self._all()
        if name not in entries:
            allowed = ", ".join(entries)
            raise ConfigError(f"unknown {self.kind} {name!r}.{nearest(str(name), entries)} Allowed: {allowed}.")
        return entries[name]

    def source(self, name: str) -> plugins.Source | None:
        """Which plugin an entry is from; None for the package's own."""
        return plugins.source_of(self[name])

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, T]:
        self._own()
        if not self._complete:
            self._complete = True
            plugins.load(self.kind, lambda name: name in self._entries)
        return self._entries

    def _own(self) -> None:
        if self._home:
            home, self._home = self._home, ""
            import_all(home)


def import_all(package: str) -> None:
    """Import every module of a package, in the order of their names."""
    folder = importlib.import_module(package)
    for module in pkgutil.iter_modules(folder.__path__, f"{package}."):
        importlib.import_module(module.name)


def checked(factory: Callable[..., Any], what: str) -> Callable[..., Any]:
    """The factory, holding its settings to their annotations at every call; `what` names it in messages."""

    @functools.wraps(factory)
    def call(*args: Any, **given: Any) -> Any:
        settings = settings_of(factory)
        try:
            bound = inspect.signature(factory).bind_partial(*args)
        except TypeError:
            return factory(*args, **given)  # says itself what is wrong with them
        by_place = {name: value for name, value in bound.arguments.items() if name in settings}
        free = inspect.signature(factory).parameters.keys() - bound.arguments.keys() - settings.keys()
        others = {name: value for name, value in given.items() if name in free}
        fitting = check(what, settings, {**by_place, **{k: v for k, v in given.items() if k not in others}})
        bound.arguments.update({name: fitting.pop(name) for name in by_place})
        value = value_of(factory)
        return factory(*bound.args, **others, **(fitting if value is None else {VALUE: value(**fitting)}))

    return call
