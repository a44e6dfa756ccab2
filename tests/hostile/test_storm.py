"""A storm of kills: of runs and of workers, by KILL, TERM and INT, at random moments, over methods and executors.

`make test-hostile KILLS=200 SEED=7` chooses how many and which.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accord.executors.processes import can_fork
from support.storm import EXECUTORS, METHODS, Storm
from support.zygote import Zygote

pytestmark = pytest.mark.skipif(
    not can_fork() or not Path("/proc/self/stat").exists(), reason="needs fork, and /proc to see who is left"
)


def test_a_breeze(zygote: Zygote, tmp_path: Path) -> None:
    storm = Storm(zygote, tmp_path, seed=1)
    for method in ("fedavg", "scaffold", "ditto"):
        for executor in EXECUTORS:
            storm.journey(method, executor)
    assert storm.wrong == []
    assert storm.kills.total() > 0


@pytest.mark.hostile
@pytest.mark.timeout(3600)
def test_a_storm(zygote: Zygote, tmp_path: Path) -> None:
    wanted = int(os.environ.get("ACCORD_KILLS", "100"))
    storm = Storm(zygote, tmp_path, seed=int(os.environ.get("ACCORD_SEED", "0")))
    try:
        storm.blow(wanted)
    finally:
        kills = ", ".join(f"{count} {name}" for name, count in sorted(storm.kills.items()))
        codes = ", ".join(f"{count} x {code}" for code, count in sorted(storm.codes.items()))
        print(f"\n{storm.kills.total()} kills in {storm.journeys} runs: {kills}\nexit codes: {codes}")
    assert storm.wrong == []
    assert len(METHODS) == 12
