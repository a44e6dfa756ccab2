"""The methods by name. A method is one file that registers its factory with one line, `@method("client")`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast, get_args

from accord.core.algorithm import Algorithm, Method
from accord.settings import Registry

Family = Literal["papers", "client", "data", "server", "personal", "ends"]
FAMILIES: dict[Family, str] = {
    "papers": "The five papers",
    "client": "Global model, changes on the client",
    "data": "Global model, mixed or shared data",
    "server": "Global model, changes on the server",
    "personal": "Personal models",
    "ends": "Ends of the scale, and your own mixture",
}
F = TypeVar("F", bound=Callable[..., Algorithm])


def _place(name: str, facts: Mapping[str, Any]) -> tuple[int, str]:
    """By family, then by name; a method of no family comes last."""
    families = get_args(Family)
    family = facts.get("family")
    return families.index(family) if family in families else len(families), name


ALGORITHMS: Registry[Callable[..., Algorithm]] = Registry("algorithm", home="accord.algorithms", order=_place)


def method(family: Family, *, personal: bool | None = None, part: Sequence[str] = ()) -> Callable[[F], F]:
    """Register a factory under its own name.

    `personal` says that the method is judged by the clients' own models; the family of personal ones need not say it.
    `part` names the settings of its part, for a method that is FedAvg and one part: `compose` may then list it.
    """
    judged_personally = family == "personal" if personal is None else personal

    def register(factory: F) -> F:
        @functools.wraps(factory)
        def made(*args: Any, **given: Any) -> Algorithm:
            built = factory(*args, **given)
            return replace(built, personal=judged_personally) if isinstance(built, Method) else built

        add = ALGORITHMS.add(factory.__name__, family=family, personal=judged_personally, part=tuple(part))
        return cast(F, add(made))

    return register


def is_personal(name: str) -> bool:
    """Whether the method of this name is judged by the clients' own models."""
    return bool(ALGORITHMS.facts(name).get("personal", False))
