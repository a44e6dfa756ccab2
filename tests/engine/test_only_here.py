"""Two processes never work in one run's folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accord.engine.files import only_here
from accord.errors import RunError

HOLD = """
import sys
from pathlib import Path
from accord.engine.files import only_here
with only_here(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_ends_even_by_a_kill(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process works in"), only_here(tmp_path):
            pass
        other.kill()
    with only_here(tmp_path):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot write into"), only_here(tmp_path / "missing"):
        pass
