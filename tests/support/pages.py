"""The pages of the documentation, and the code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^(<!-- not run: .+? -->\n+)?```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def fences(page: str) -> Iterator[tuple[str, str]]:
    """Language and text of every piece of fenced code that a reader could run; others say `<!-- not run: why -->`."""
    for excused, language, text in FENCE.findall(page):
        if not excused:
            yield language, text


def blocks(page: str, language: str = "") -> Iterator[str]:
    """The fenced code of a page in one language; without a language it is for a shell."""
    for said, text in fences(page):
        if said == language:
            yield text
