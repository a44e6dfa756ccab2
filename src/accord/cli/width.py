"""How wide lines may be: as the terminal is; a file or a pipe takes any, unless COLUMNS says otherwise."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

from rich.console import Console

ROOMY = 160  # columns of a table that goes to a file


def width() -> int | None:
    """Columns of the terminal; None where there is none."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return None


def one_line(text: str) -> str:
    """The text, cut where the terminal ends."""
    columns = width()
    return text if columns is None or len(text) <= columns else f"{text[: max(columns - 1, 1)]}…"


def wrapped(text: str, indent: str = "") -> str:
    """The text on as many lines as the terminal needs, the second and later ones indented."""
    columns = width()
    if columns is None:
        return text
    lines = text.splitlines() or [""]
    return "\n".join(
        textwrap.fill(line, max(columns, 20), subsequent_indent=indent, break_on_hyphens=False) for line in lines
    )


def wide_console() -> Console:
    """For tables: a file has room, so their columns are not folded there."""
    console = Console()
    if width() is None:
        console.width = max(console.width, ROOMY)
    return console
