"""Parts by name, for methods that are put together in a configuration file.

A part is written `"fedcm"`, or with settings `"fedcm: alpha=0.2"`, `"fedntd: beta=0.1, tau=2"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from accord.core.algorithm import Setup
from accord.core.task import Part
from accord.errors import ConfigError, nearest
from accord.parts.bounds import within
from accord.parts.contrast import feddecorr
from accord.parts.distill import fedntd
from accord.parts.gradients import fedcm
from accord.parts.losses import Proximal
from accord.parts.mixing import mixup
from accord.settings import NOT_NEGATIVE, Misfit, Registry, Search, Word, fit, parse_value, settings_of

PARTS: Registry[Callable[..., Part]] = Registry("part")

for factory in (mixup, fedcm, feddecorr, fedntd):
    PARTS.add(factory.__name__)(factory)


@PARTS.add("fedprox")
def fedprox(
    setup: Setup,
    *,
    mu: Annotated[float, NOT_NEGATIVE, Search(1e-3, 1.0, log=True), "weight of the proximal term"] = 0.01,
) -> Proximal:
    """The pull back to the received model."""
    within(NOT_NEGATIVE, mu=mu)
    return Proximal(mu)


def build_parts(setup: Setup, texts: Iterable[str]) -> tuple[Part, ...]:
    """The parts so named, in that order."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    if isinstance(texts, str) or not all(isinstance(text, str) for text in listed):
        raise ConfigError(f'parts are listed by name, such as ["mixup", "fedcm"], not as {texts!r}')
    return tuple(_build(setup, text) for text in listed)


def check_together(parts: Sequence[Part]) -> None:
    """Raise ConfigError for a part listed twice, or two of which only one can be had."""
    for place, part in enumerate(parts):
        if not isinstance(part, Part):
            raise ConfigError(f"parts takes Part objects, not {part!r}; parts by name are listed in extra")
        for other in parts[:place]:
            if other.name == part.name:
                raise ConfigError(f"the part {part.name} is listed twice; list each part once")
            both = sorted(getattr(part, "conflicts", frozenset()) & getattr(other, "conflicts", frozenset()))
            if both:
                raise ConfigError(
                    f"the parts {other.name} and {part.name} do not go together: each replaces {both[0]}; "
                    "leave one of them out"
                )


def fitting(setup: Setup, parts: Sequence[Part]) -> Setup:
    """The setup, with short last batches filled when a part compares the samples of a batch."""
    return setup.coupled() if any(getattr(part, "couples", False) for part in parts) else setup


def _build(setup: Setup, text: str) -> Part:
    name, _, options = text.partition(":")
    factory = PARTS[name.strip()]
    known = settings_of(factory)
    values: dict[str, object] = {}
    for option in filter(None, (piece.strip() for piece in options.split(","))):
        key, equals, written = (piece.strip() for piece in option.partition("="))
        where = f"part {text!r}"
        if not equals or not written:
            raise ConfigError(f"{where}: {option!r} must be a setting and its value, such as alpha=0.1")
        if key not in known:
            allowed = ", ".join(known)
            raise ConfigError(f"{where}: unknown setting {key!r}.{nearest(key, known)} Allowed: {allowed}.")
        if key in values:
            raise ConfigError(f"{where}: {key!r} is given twice; give it once")
        try:
            values[key] = fit(known[key].type, Word(written, parse_value(written)), known[key].bounds)
        except Misfit as misfit:
            raise ConfigError(f"{where}: {key} = {written}: {misfit}") from None
    return factory(setup, **values)
