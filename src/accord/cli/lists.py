"""Lists separated by commas, as options have them."""

from __future__ import annotations

from accord.errors import ConfigError


def words(text: str, what: str) -> list[str]:
    """Names, without repetitions."""
    found = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise ConfigError(f"{what} {text!r}: name at least one, separated by commas")
    return found


def numbers(text: str, what: str) -> list[int]:
    """Seeds, without repetitions."""
    try:
        found = list(dict.fromkeys(int(word) for word in words(text, what)))
    except ValueError:
        raise ConfigError(f"{what} {text!r}: must be whole numbers separated by commas, such as 0,1,2") from None
    if min(found) < 0:
        raise ConfigError(f"{what} {text!r}: must be at least 0")
    return found
