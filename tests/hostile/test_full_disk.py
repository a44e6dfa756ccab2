"""A disk that fills up while a run writes: it says so in a sentence, and goes on to the same bits when there is room.

A limit on the size of files stands for the full disk where nothing may be mounted; in the long version a small disk is
filled at random moments.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.storm import METHODS, SETTINGS, Storm, contents, left_behind
from support.zygote import Zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux' limits and mounts")


def ended(zygote: Zygote, *command: object, log: Path, largest_file: int = 0) -> tuple[int | None, str]:
    """Exit code and output of a command."""
    log.unlink(missing_ok=True)
    pid = zygote.start(*command, log=log, largest_file=largest_file)
    deadline = time.monotonic() + 120
    while (code := zygote.poll(pid)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return code, log.read_text()


def one_sentence(said: str) -> bool:
    """An error as a user should see it."""
    lines = [line for line in said.splitlines() if line.strip()]
    return len(lines) == 1 and lines[0].startswith("error: cannot write ") and "Traceback" not in said


@pytest.mark.parametrize(
    ("what", "changes", "largest_file"),
    [
        ("metrics.jsonl", {"rounds": 240, "evaluate.every": 240, "checkpoint.every": 240, "clients.count": 2}, 17000),
        ("server.safetensors", {}, 20000),
    ],
)
def test_no_room_for_a_file(
    zygote: Zygote, tmp_path: Path, what: str, changes: dict[str, object], largest_file: int
) -> None:
    storm = Storm(zygote, tmp_path, settings={**SETTINGS, **changes})
    whole, _ = storm.undisturbed("fedavg")
    folder, log = tmp_path / "x", tmp_path / "x.log"
    command = storm.command("fedavg", "sequential", folder)
    code, said = ended(zygote, *command, log=log, largest_file=largest_file)
    assert code == 1
    assert one_sentence(said), said
    assert what in said
    assert "File too large" in said
    assert ended(zygote, "resume", folder, "-q", log=log)[0] == 0
    assert contents(folder) == whole
    assert left_behind(folder) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> None:
    """Leave no room."""
    with (place / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


@pytest.mark.hostile
@pytest.mark.timeout(1200)
def test_a_disk_that_fills_up_at_random_moments(zygote: Zygote, tmp_path: Path, small_disk: Path) -> None:
    """Every attempt finds the disk full at some moment; the next one has room, until it is full again."""
    rng, full = random.Random(0), 0
    storm = Storm(zygote, tmp_path)
    for number, method in enumerate(METHODS * 2):
        whole, seconds = storm.undisturbed(method)
        folder, log = small_disk / "x", tmp_path / "x.log"
        for attempt in range(20):
            log.unlink(missing_ok=True)
            pid = zygote.start(*storm.command(method, ("sequential", "processes")[number % 2], folder), log=log)
            if attempt < 4:
                time.sleep(rng.uniform(0, seconds))
                fill(small_disk)
            while (code := zygote.poll(pid)) is None:
                time.sleep(0.01)
            (small_disk / "filler").unlink(missing_ok=True)
            if code == 0:
                break
            full += 1
            said = log.read_text()
            assert code == 1, said
            assert said.startswith("error: cannot "), said
            assert "No space left on device" in said
            assert "Traceback" not in said
        assert contents(folder) == whole
        assert left_behind(folder) == []
        shutil.rmtree(folder)
    print(f"\n{full} times no room left in {2 * len(METHODS)} runs")
    assert full
