"""From a file, a dictionary or the command line to a checked RunConfig, and back."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from accord.config import catalog, toml
from accord.config.overrides import overlay, parse_sets
from accord.config.sections import Gathered, Problems, declared, read
from accord.config.tree import RunConfig
from accord.errors import ConfigError
from accord.settings import REQUIRED, Setting, plain, settings_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# What changes where or how fast a run happens, or what is kept of it, but not what comes out of it.
_NOT_HASHED = ("out", "name", "executor", "workers", "device", "log", "checkpoint", "federation")
# What there was nothing to set about once: as it is by default, it asks for what was computed then.
_LATER = ("partial_sums", "privacy", "compress", "pace", "attack")
_LATER_MEASURES = {"confusion": "auto", "calibration": True}
# What later versions added, and asks for nothing where it is empty: hashes of earlier runs hold.
_EMPTY_IS_NOTHING = (
    ("clients", "over"),
    ("model", "weights"),
    *(("algorithm", key) for key in ("public", "cgl", "pseudo", "orthonormal", "bargain", "server_momentum")),
)
# Where files lie; what is in them is in a run's identity.
_DATA_NOT_HASHED = ("dir", "download", "path", "test", "schema")


def load_config(path: Path | str | None = None, sets: Sequence[str] = ()) -> RunConfig:
    """The file's configuration, or the defaults, with changes; a ConfigError lists all problems at once."""
    return from_dict(read_toml(Path(path)), sets, str(path)) if path is not None else from_dict({}, sets)


def from_dict(given: Mapping[str, object], sets: Sequence[str] = (), source: str = "") -> RunConfig:
    """A checked configuration from nested dictionaries, with changes; what is not given has its default.

    `source` is what an error names as the place `given` came from.
    """
    problems = Problems()
    merged = overlay(RunConfig, given, parse_sets(sets, problems))
    config = RunConfig(**read(RunConfig, merged, catalog.registry, problems), problems=problems)
    problems.raise_if_any(source)
    return config


def to_dict(config: RunConfig) -> dict[str, Any]:
    """Nested dictionaries of plain values, the chosen factories' defaults included."""
    return _section(config)


def _section(section: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in fields(section):
        value = getattr(section, item.name)
        if item.name == "options":
            values |= {key: plain(v) for key, v in value.items()}
        else:
            values[item.name] = _section(value) if is_dataclass(value) else plain(value)
    return values


def to_toml(config: RunConfig) -> str:
    """The complete configuration with comments; `accord run` on it repeats the run."""
    return toml.write(RunConfig, to_dict(config))


def config_hash(config: RunConfig) -> str:
    """The same for two configurations exactly when they ask for the same computation (sha256 in hex)."""
    values = {key: value for key, value in to_dict(config).items() if key not in _NOT_HASHED}
    values["data"] = {key: value for key, value in values["data"].items() if key not in _DATA_NOT_HASHED}
    for item in fields(config):
        if isinstance(getattr(config, item.name), Gathered):  # what is off asks for nothing, known here or not
            asked = {key: value for key, value in values[item.name].items() if value}
            values[item.name] = {key: v for key, v in asked.items() if v != _LATER_MEASURES.get(key)}
    for section, key in _EMPTY_IS_NOTHING:
        if not values[section].get(key, True):
            del values[section][key]
    unset = to_dict(RunConfig())
    values = {key: value for key, value in values.items() if key not in _LATER or value != unset[key]}
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def changed(config: RunConfig) -> dict[str, Any]:
    """The settings that shape the result and differ from their defaults, by key.

    >>> changed(from_dict({"local": {"lr": 0.2}, "workers": 3}))
    {'local.lr': 0.2}
    """
    found: dict[str, Any] = {}
    for item in fields(config):
        section = getattr(config, item.name)
        if item.name in _NOT_HASHED:
            continue
        if not is_dataclass(section):
            found |= _unusual("", settings_of(RunConfig), {item.name: plain(section)})
            continue
        kind: type = type(section)
        settings = {**settings_of(kind), **declared(kind, catalog.registry, getattr(section, "name", ""))}
        left_out = _DATA_NOT_HASHED if item.name == "data" else ()
        values = {key: value for key, value in _section(section).items() if key not in left_out}
        found |= _unusual(f"{item.name}.", settings, values)
    return found


def _unusual(prefix: str, settings: Mapping[str, Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + key: value for key, value in values.items() if _differs(value, settings[key])}


def _differs(value: object, setting: Setting) -> bool:
    return setting.default is REQUIRED or value != plain(setting.default)


def read_toml(path: Path) -> dict[str, Any]:
    """The file's content, or a ConfigError that says what is the matter with it."""
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; name a TOML file")
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return values
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise ConfigError(f"cannot read the configuration {path}: {reason}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; a configuration is a TOML file") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
