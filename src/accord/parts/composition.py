"""Parts by name, for methods that are put together in a configuration file.

A part is written `"fedcm"`, or with settings `"fedcm: alpha=0.2"`, `"fedntd: beta=0.1, tau=2"`. The names are those of
methods that are FedAvg and one part, and say so where they are registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from accord.core.algorithm import Method, Setup
from accord.core.methods import ALGORITHMS
from accord.core.task import Part
from accord.errors import ConfigError, nearest
from accord.parts.losses import SampleLoss
from accord.settings import Misfit, Setting, Word, fit, parse_value, settings_of


def listed_parts() -> dict[str, dict[str, Setting]]:
    """The settings of every part that has a name."""
    parts = {name: ALGORITHMS.facts(name).get("part", ()) for name in ALGORITHMS}
    return {name: {key: settings_of(ALGORITHMS[name])[key] for key in keys} for name, keys in parts.items() if keys}


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
            both = part.conflicts & other.conflicts
            if both:
                raise ConfigError(
                    f"the parts {other.name} and {part.name} do not go together: each replaces {min(both)}; "
                    "leave one of them out"
                )


def _build(setup: Setup, text: str) -> Part:
    name, _, options = text.partition(":")
    name, named = name.strip(), listed_parts()
    if name not in named:
        raise ConfigError(f"unknown part {name!r}.{nearest(name, named)} Allowed: {', '.join(named)}.")
    values = _values(f"part {text!r}", named[name], options)
    method = ALGORITHMS[name](setup, **values)
    assert isinstance(method, Method)
    (part,) = (part for part in method.local.parts if not isinstance(part, SampleLoss))
    return part


def _values(where: str, known: dict[str, Setting], options: str) -> dict[str, object]:
    """Settings written as text."""
    values: dict[str, object] = {}
    for option in filter(None, (piece.strip() for piece in options.split(","))):
        key, equals, written = (piece.strip() for piece in option.partition("="))
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
    return values
