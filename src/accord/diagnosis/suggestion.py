"""From findings to what to do: rules, each with the measurement behind it and what it rests on (`rules.toml`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

from accord.config.load import read_toml
from accord.diagnosis.finding import Finding

GRADES = ("none", "mild", "strong")
GRAVE = ("labels", "features", "concept", "drift")  # what makes averaging itself hard
ENOUGH = "FedAvg, tuned, is enough."


@dataclass(frozen=True)
class Evidence:
    """A line of our own results."""

    page: str
    quote: str  # as it stands there
    says: str


@dataclass(frozen=True)
class Advice:
    """One thing to do."""

    name: str
    do: str
    because: str
    methods: tuple[str, ...]
    refused: Mapping[str, str]  # methods that cannot be had here, and why
    settings: tuple[str, ...]  # as --set takes them
    hint: str
    evidence: tuple[Evidence, ...]

    def as_record(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "do": self.do,
            "because": self.because,
            "methods": list(self.methods),
            "refused": dict(self.refused),
            "settings": list(self.settings),
            "hint": self.hint,
            "evidence": [{"page": one.page, "says": one.says} for one in self.evidence],
        }


@dataclass(frozen=True)
class Suggestion:
    """What to do about a federation."""

    enough: bool  # whether FedAvg is
    verdict: str
    advice: tuple[Advice, ...]
    methods: tuple[str, ...]  # to compare, FedAvg first
    always: str
    evidence: tuple[Evidence, ...]

    def as_record(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "fedavg_is_enough": self.enough,
            "verdict": self.verdict,
            "methods": list(self.methods),
            "first": self.always,
            "advice": [one.as_record() for one in self.advice],
        }


@functools.cache
def rules() -> Mapping[str, Any]:
    """As they are written."""
    with as_file(files("accord.diagnosis").joinpath("rules.toml")) as path:
        return read_toml(path)


def suggested(findings: Sequence[Finding], refusal: Callable[[str], str] = lambda method: "") -> Suggestion:
    """The rules that hold; `refusal` says why a method cannot be had."""
    known = {finding.name: finding for finding in findings}
    advice = tuple(_advice(rule, known, refusal) for rule in rules()["rule"] if _holds(rule, known))
    wanted = dict.fromkeys(method for one in advice for method in one.methods)
    strong = [known[name] for name in GRAVE if name in known and known[name].severity == "strong"]
    conflict = "concept" in known and known["concept"].found
    enough = not strong and not conflict
    return Suggestion(
        enough,
        _verdict(enough, strong, known, tuple(wanted)),
        advice,
        ("fedavg", *wanted) if not enough else ("fedavg", "fedavgm"),
        rules()["always"],
        tuple(Evidence(**one) for one in rules()["always_evidence"]),
    )


def _holds(rule: Mapping[str, Any], known: Mapping[str, Finding]) -> bool:
    def at_least(asked: Mapping[str, str]) -> list[bool]:
        return [
            name in known and known[name].found and GRADES.index(known[name].severity) >= GRADES.index(grade)
            for name, grade in asked.items()
        ]

    return all(at_least(rule["when"])) and not any(at_least(rule.get("unless", {})))


def _advice(rule: Mapping[str, Any], known: Mapping[str, Finding], refusal: Callable[[str], str]) -> Advice:
    reasons = {method: refusal(method) for method in rule["methods"]}
    return Advice(
        rule["name"],
        rule["do"],
        rule["because"].format(**{name: _Numbers(finding) for name, finding in known.items()}),
        tuple(method for method, why in reasons.items() if not why),
        {method: why for method, why in reasons.items() if why},
        tuple(rule["settings"]),
        rule.get("hint", ""),
        tuple(Evidence(**one) for one in rule.get("evidence", ())),
    )


class _Numbers:
    """A finding's numbers as attributes, for the sentences of rules."""

    def __init__(self, finding: Finding) -> None:
        self._numbers = finding.numbers

    def __getattr__(self, name: str) -> float:
        return float(self._numbers.get(name) or 0.0)


def _verdict(enough: bool, strong: Sequence[Finding], known: Mapping[str, Finding], methods: tuple[str, ...]) -> str:
    mild = [one.title.lower() for name, one in known.items() if name in GRAVE and one.severity == "mild"]
    if enough and not mild:
        return f"{ENOUGH} Nothing was found that would trouble averaging; other methods have little to gain here."
    if enough:
        return f"{ENOUGH} What was found is mild ({', '.join(mild)}); keep it as the yardstick for anything else."
    what = ", ".join(one.title.lower() for one in strong) or "concept shift"
    others = ", ".join(methods) or "other methods"
    return f"FedAvg may not be enough: {what}. Compare it, tuned, with {others}, tuned alike."
