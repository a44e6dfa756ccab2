"""Small registries in place of the large ones, so that these tests are about the reader alone."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest

import accord.executors
import accord.measures
import accord.models.initialisation
import accord.sampling  # noqa: F401 - real, before some of what it needs is replaced
from accord.config.catalog import WHERE
from accord.settings import NOT_NEGATIVE, AtLeast, Range, Registry, Search

if TYPE_CHECKING:
    from nowhere import OnlyForTypeCheckers  # a factory's own arguments need not be importable


def fedavg(setup: OnlyForTypeCheckers) -> None:
    """Average."""


def fedprox(
    setup: OnlyForTypeCheckers,
    *,
    mu: Annotated[float, NOT_NEGATIVE, Search(1e-3, 1, log=True), "weight of the proximal term"] = 0.01,
    warmup: Annotated[int | None, AtLeast(1), "rounds without it"] = None,
    parts: Annotated[tuple[str, ...], "further parts"] = (),
    kind: Annotated[Literal["plain", "squared"], "form of the term"] = "squared",
) -> None:
    """Hold near."""


def mnist5k(places: object, *, normalise: Annotated[bool, "passed on by the section"] = True) -> None:
    """Digits."""


def folder(places: object, *, path: Annotated[str, "where the images are"]) -> None:
    """Your own."""


def dirichlet(data: object, clients: int, *, alpha: Annotated[float, Range(above=0), "skew"] = 0.5) -> None:
    """Skewed."""


def iid(data: object, clients: int) -> None:
    """Alike."""


def natural(data: object, clients: int) -> None:
    """Given."""


def auto(data: object, clients: int) -> None:
    """Open."""


def none(data: object) -> None:
    """Nothing."""


def two_nn(shape: object, classes: int, hidden: Annotated[int, AtLeast(1), "width"] = 200, plain: int = 3) -> None:
    """A setting need not be keyword-only if it is annotated; `plain` is neither."""


CONTENT: dict[str, dict[str, Any]] = {
    "algorithm": {"fedavg": fedavg, "fedprox": fedprox},
    "dataset": {"mnist5k": mnist5k, "folder": folder},
    "partition": {"auto": auto, "dirichlet": dirichlet, "iid": iid, "natural": natural},
    "transform": {"none": none},
    "model": {"2nn": two_nn},
}


@pytest.fixture(autouse=True)
def fake_registries() -> Iterator[None]:
    """For every test here; hypothesis does not like function-scoped monkeypatch, so it is done by hand."""
    faked = {kind: WHERE[kind] for kind in CONTENT}  # the others are short lists of names
    before = {module: sys.modules.get(module) for module, _ in faked.values()}
    for kind, (module, name) in faked.items():
        registry: Registry[Any] = Registry(kind)
        for entry, factory in CONTENT[kind].items():
            registry.add(entry)(factory)
        fake = types.ModuleType(module)
        setattr(fake, name, registry)
        sys.modules[module] = fake
    yield
    for module, real in before.items():
        if real is None:
            del sys.modules[module]
        else:
            sys.modules[module] = real
