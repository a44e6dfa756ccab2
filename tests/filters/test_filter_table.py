"""The table in docs/privacy.md is what a try of every method gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accord.core.methods import ALGORITHMS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_table_is_as_the_code_is() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/filter_table.py", "--check"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_method_is_in_the_table() -> None:
    page = (ROOT / "docs" / "privacy.md").read_text()
    missing = [name for name in ALGORITHMS if f"\n| `{name}` |" not in page and name.isidentifier()]
    assert missing == []
