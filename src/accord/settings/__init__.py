"""Settings: declared once, beside what they set, and checked in one place wherever a value comes from."""

from accord.settings.bounds import (
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    PROPER_FRACTION,
    AtLeast,
    Named,
    Range,
    Search,
)
from accord.settings.plugins import Source, import_modules
from accord.settings.registry import Registry, checked, import_all
from accord.settings.schema import REQUIRED, Factory, Setting, check, is_section, settings_of
from accord.settings.text import parse_value
from accord.settings.values import NONE, Misfit, Word, cut, expected, fit, plain, show

__all__ = [
    "FRACTION",
    "NONE",
    "NOT_NEGATIVE",
    "POSITIVE",
    "PROPER_FRACTION",
    "REQUIRED",
    "AtLeast",
    "Factory",
    "Misfit",
    "Named",
    "Range",
    "Registry",
    "Search",
    "Setting",
    "Source",
    "Word",
    "check",
    "checked",
    "cut",
    "expected",
    "fit",
    "import_all",
    "import_modules",
    "is_section",
    "parse_value",
    "plain",
    "settings_of",
    "show",
]
