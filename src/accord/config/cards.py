"""What can be said of an entry: its card, and its settings in words."""

from __future__ import annotations

from accord.config import catalog
from accord.config.sections import own_settings
from accord.config.toml import literal
from accord.config.tree import (
    AlgorithmConfig,
    AttackConfig,
    DataConfig,
    ModelConfig,
    PartitionConfig,
    PrivacyConfig,
    TransformConfig,
)
from accord.settings import REQUIRED, Factory, Setting

# Sections that hold the settings of what they name; of other kinds an entry may declare a setting of its own.
SECTIONS = {
    section.kind: section
    for section in (
        AlgorithmConfig,
        AttackConfig,
        DataConfig,
        PartitionConfig,
        TransformConfig,
        ModelConfig,
        PrivacyConfig,
    )
}


def settings_of_entry(kind: str, factory: Factory) -> dict[str, Setting]:
    """The settings that come with a name."""
    section = SECTIONS.get(kind)
    if section is not None:
        return own_settings(section, factory)
    setting: Setting | None = getattr(factory, "setting", None)
    return {} if setting is None else {setting.name: setting}


def explanation(kind: str, name: str) -> str:
    """The card of an entry, and its settings."""
    entry = catalog.registry(kind)[name]
    lines = [describe_setting(setting) for setting in settings_of_entry(kind, entry).values()]
    section = {"dataset": "data", "measure": "evaluate", "protection": "privacy"}.get(kind, kind)
    title = "Settings:" if lines else "It has no settings of its own."
    return "\n".join([catalog.card(kind, entry), "", title, *(f"  {section}.{line}" for line in lines)])


def describe_setting(setting: Setting) -> str:
    """`mu = 0.01: weight of the proximal term (a number, at least 0)`."""
    default = "" if setting.default is REQUIRED else f" = {literal(setting.default)}"
    needed = ", required" if setting.default is REQUIRED else ""
    return f"{setting.name}{default}: {setting.doc} ({setting.allowed}{needed})"
