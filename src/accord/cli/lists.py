"""Lists separated by commas, as options have them."""

from __future__ import annotations

from accord.errors import ConfigError


def words(text: str, what: str) -> list[str]:
    """Names, without repetitions."""
    names = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not names:
        raise ConfigError(f"{what} {text!r}: name at least one, separated by commas")
    return names


def variants(texts: list[str], what: str) -> list[str]:
    """Algorithms, several to a text; one with settings of its own ("fedprox: mu=0.1, local.lr=0.3") is a text."""
    names = [name for text in texts for name in ([text.strip()] if ":" in text else words(text, what))]
    return list(dict.fromkeys(names))


def numbers(text: str, what: str) -> list[int]:
    """Seeds, without repetitions."""
    try:
        seeds = list(dict.fromkeys(int(word) for word in words(text, what)))
    except ValueError:
        raise ConfigError(f"{what} {text!r}: must be whole numbers separated by commas, such as 0,1,2") from None
    if min(seeds) < 0:
        raise ConfigError(f"{what} {text!r}: must be at least 0")
    return seeds
