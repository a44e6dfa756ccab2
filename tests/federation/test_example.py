"""examples/flower/README.md as it stands: a federation, and Flower's own command `flwr run .` with the app there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from accord.federation.folder import Folder
from accord.federation.surroundings import surroundings
from accord.federation.up import bring_down
from support.real_federation import started

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower"


@pytest.mark.federation
@pytest.mark.timeout(900)
def test_the_example_runs_by_flowers_own_command(tmp_path: Path) -> None:
    place = tmp_path / "flower"
    shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("federation", "runs", "__pycache__"))
    block = re.findall(r"^```\n(accord .*?)^```$", (EXAMPLE / "README.md").read_text(), flags=re.M | re.S)[0]
    environment = surroundings(Path.home())
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    try:
        done = subprocess.run(
            ["bash", "-e", "-c", block], cwd=place, env=environment, capture_output=True, text=True, timeout=800
        )
    finally:
        bring_down(Folder(place / "federation"))
    assert done.returncode == 0, done.stdout + done.stderr
    rounds = re.findall(r"round (\d) of 3, 2 sites: accuracy 0\.\d+", done.stdout + done.stderr)
    assert rounds == ["1", "2", "3"]
    assert "done: the results are in" in done.stdout + done.stderr
    assert (place / "runs" / "first" / "model" / "model.safetensors").is_file()
    assert started(place / "federation") == []
