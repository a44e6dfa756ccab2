"""A configuration as TOML with a comment beside every key (Python itself only reads TOML)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_origin

from accord.config import catalog
from accord.config.sections import declared
from accord.settings import NONE, Setting, is_section, settings_of

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write(cls: type, values: Mapping[str, object]) -> str:
    """The values of `cls`, nested as its sections are, as text that reads back to the same values."""
    settings = settings_of(cls)
    top = {name: s for name, s in settings.items() if not is_section(s.type)}
    blocks = [_lines(top, values)]
    for name, setting in settings.items():
        if is_section(setting.type):
            section = values[name]
            assert isinstance(section, Mapping)
            known = dict(settings_of(setting.type))
            known |= declared(setting.type, catalog.registry, str(section.get("name", "")))
            blocks.append([f"[{name}]", *_lines(known, section)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _lines(settings: Mapping[str, Setting], values: Mapping[str, object]) -> list[str]:
    pairs = [(f"{name} = {literal(values[name])}", setting) for name, setting in settings.items()]
    width = min(max((len(text) for text, _ in pairs), default=0), 40)
    return [f"{text:<{width}}  # {_comment(setting)}" for text, setting in pairs]


def _comment(setting: Setting) -> str:
    """What the key means and what it may be, on one line."""
    limits = [str(setting.bounds)] if setting.bounds is not None else []
    if get_origin(setting.type) is Literal:
        limits.append(setting.allowed)
    if setting.named is not None:
        limits.append("one of " + ", ".join([*setting.named.also, *catalog.registry(setting.named.kind)]))
    text = setting.doc + (f" ({', '.join(limits)})" if limits else "")
    return "".join(c if c.isprintable() else " " for c in text) or setting.allowed


def literal(value: object) -> str:
    """One value in TOML's syntax.

    >>> literal([1, 2.5, True, 'say "hi"'])
    '[1, 2.5, true, "say \\\\"hi\\\\""]'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if value is None:
        return f'"{NONE}"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in value) + '"'
    raise TypeError(f"{value!r} cannot be written as TOML")
