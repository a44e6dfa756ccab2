"""The tables of methods in the documentation are those of the code, and the authors' namespace stays small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import accord.authoring

ROOT = Path(__file__).resolve().parent.parent


def test_the_tables_of_methods_are_those_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "method_table.py"), "--check"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    looked = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert looked.returncode == 0, looked.stdout + looked.stderr


def test_authors_learn_at_most_25_names() -> None:
    names = accord.authoring.__all__
    assert len(names) == len(set(names)) <= 25
    assert all(hasattr(accord.authoring, name) for name in names)
    public = {name for name in vars(accord.authoring) if not name.startswith("_")}
    assert public == set(names), "what is not listed must not be found there either"
