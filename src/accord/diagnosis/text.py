"""A diagnosis as text: a line for each finding, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from accord.diagnosis.finding import WORDS

if TYPE_CHECKING:
    from accord.diagnosis.diagnosis import Diagnosis
    from accord.diagnosis.suggestion import Evidence

Wrap = Callable[[str, str], str]  # a text and what later lines begin with


def as_lines(diagnosis: Diagnosis, wrap: Wrap) -> list[str]:
    """Paragraphs, each as wide as `wrap` makes it."""
    suggestion = diagnosis.suggestion
    lines = [
        wrap(
            f"{diagnosis.name}: {diagnosis.clients:,} clients, {diagnosis.samples:,} training samples, task "
            f"{diagnosis.problem}",
            "",
        ),
        "",
    ]
    wide = max(len(word) for word in WORDS.values())
    for finding in diagnosis.findings:
        head = f"{WORDS[finding.severity]:>{wide}}  {finding.title}. "
        lines.append(wrap(head + finding.sentence, " " * (wide + 2)))
    lines += ["", wrap(suggestion.verdict, ""), wrap(f"{suggestion.always} ({_sources(suggestion.evidence)}).", "")]
    for number, one in enumerate(suggestion.advice, 1):
        lines.append(wrap(f"{number}. {one.do}: {one.because}.", "   "))
        if one.methods:
            lines.append(wrap(f"   methods: {', '.join(one.methods)}", "     "))
        lines += [wrap(f"   not here: {method}, as {why}", "     ") for method, why in one.refused.items()]
        if one.settings or one.hint:
            told = " ".join([*one.settings, *([f"({one.hint})"] if one.hint else [])])
            lines.append(wrap(f"   settings: {told}", "     "))
        lines += [wrap(f"   ours: {e.says} ({e.page})", "     ") for e in one.evidence]
        if not one.evidence:
            lines.append(wrap("   ours: no result yet; it follows from what was measured", "     "))
    if diagnosis.command:
        lines += ["", wrap(f"next: {diagnosis.command}", "  ")]
    return lines


def _sources(evidence: tuple[Evidence, ...]) -> str:
    return "; ".join(f"{one.says}, {one.page}" for one in evidence)
