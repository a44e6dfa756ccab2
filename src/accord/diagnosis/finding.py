"""One thing that was looked for: what was measured, how grave it is, a sentence, and what a picture of it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from accord.data.federated import FederatedData

Severity = Literal["none", "mild", "strong", "unknown"]
WORDS: Mapping[Severity, str] = {"none": "no", "mild": "mild", "strong": "STRONG", "unknown": "unknown"}


@dataclass(frozen=True)
class Finding:
    """`unknown` is what cannot be told here, or is not defined for the task; the sentence says why."""

    name: str  # by which rules and files know it
    title: str
    severity: Severity
    sentence: str
    numbers: Mapping[str, float | int | None] = field(default_factory=dict)
    clients: tuple[str, ...] = ()  # those that stand out, the furthest first
    picture: Mapping[str, Any] = field(default_factory=dict)  # plain values; `kind` says how they are drawn

    @property
    def found(self) -> bool:
        """Whether there is something."""
        return self.severity in ("mild", "strong")

    def as_record(self) -> dict[str, Any]:
        """For a file: all but the picture."""
        return {
            "name": self.name,
            "title": self.title,
            "severity": self.severity,
            "sentence": self.sentence,
            "numbers": dict(self.numbers),
            "clients": list(self.clients),
        }


def graded(effect: float, mild: float, strong: float, *, sure: bool = True) -> Severity:
    """By how large it is, if it is not chance."""
    if not sure or not effect >= mild:
        return "none"
    return "strong" if effect >= strong else "mild"


def several(names: tuple[str, ...], most: int = 4) -> str:
    """Names in a sentence: the first few, and how many more."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def called(data: FederatedData, client: int) -> str:
    """A client in a sentence: by its name, or as client 7."""
    return data.names[client] if data.names else f"client {client}"


def unknown(name: str, title: str, why: str) -> Finding:
    """Nothing could be measured."""
    return Finding(name, title, "unknown", why)
