"""The tables of methods in the documentation are those of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("page", "options"), [("README.md", []), ("docs/methods.md", ["--lines"])])
def test_the_table_of_methods_is_the_one_the_script_prints(page: str, options: list[str]) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "method_table.py"), *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line for line in printed if line.startswith("| `")]
    written = (ROOT / page).read_text().splitlines()
    assert rows
    assert [row for row in rows if row not in written] == []
