"""What a run's follower says, and what is made of it; a script stands in for Flower's command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accord.config import load_config
from accord.errors import ConfigError, RunError
from accord.federation import running, superlink
from accord.federation.folder import Folder, State, write_state
from accord.federation.running import read_metrics, reason, run
from accord.observe import Observer

STARTED = {"success": True, "run-id": "7"}


class Told(Observer):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.rounds: list[int] = []

    def started(self, config: Any, folder: Path, total_rounds: int, first_round: int) -> None:
        self.rounds.append(-first_round)

    def round_ended(self, round: int, record: Any) -> None:
        self.rounds.append(round)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A federation that seems to be up."""
    (tmp_path / "server").mkdir()
    write_state(Folder(tmp_path), State(port=1))
    monkeypatch.setattr(superlink, "answers", lambda state, authority: True)
    return Folder(tmp_path)


def follower(monkeypatch: pytest.MonkeyPatch, *lines: Any, rounds: int = 0, summary: bool = False) -> None:
    """A process that says these lines; between first and last it writes what a run writes."""

    def begin(home: Path, app: Path, settings: Path, log: Path) -> subprocess.Popen[str]:
        place = next(line for line in settings.read_text().splitlines() if line.startswith("folder")).split('"')[1]
        code = f"""
import json, pathlib
lines = json.loads({json.dumps(json.dumps(lines))})
for line in lines[:1]:
    print(json.dumps(line), flush=True)
place = pathlib.Path({place!r})
place.mkdir(parents=True, exist_ok=True)
with open(place / "metrics.jsonl", "a") as file:
    for number in range({rounds}):
        file.write(json.dumps({{"round": number + 1}}) + "\\n")
    file.write('{{"round": ')
if {summary}:
    (place / "summary.json").write_text('{{"accuracy": 1.0}}')
for line in lines[1:]:
    print(json.dumps(line), flush=True)
"""
        log.write_text("first\nthe last word\n")
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    monkeypatch.setattr(running, "begin_following", begin)


def ended(status: str) -> dict[str, Any]:
    return {"success": True, "runs": [{"status": status}]}


def test_rounds_are_told_as_they_come(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    follower(monkeypatch, STARTED, ended("finished:completed"), rounds=3, summary=True)
    told = Told()
    place = folder.runs / "a"
    assert run(folder, load_config(sets=["rounds=3"]), place, [told]) == {"accuracy": 1.0}
    assert told.rounds == [0, 1, 2, 3]
    assert len(read_metrics(place)) == 3, "the line in the making is not read"
    assert load_config(folder.server / "asked" / "a.toml").rounds == 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"success": False, "error-message": "no such app"}], "the SuperLink did not start the run: no such app"),
        ([], "Flower's command ended without an answer: it said nothing"),
        ([STARTED, {"success": False}], r"the SuperLink is gone: start it again .*--resume .*runs/a"),
        ([STARTED, ended("finished:failed")], r"ended as finished:failed, see .*a\.log: first / the last word; go on"),
        ([STARTED, ended("finished:stopped")], "ended as finished:stopped"),
    ],
)
def test_what_went_wrong_is_said(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, lines: list[Any], message: str
) -> None:
    follower(monkeypatch, *lines)
    with pytest.raises(RunError, match=message):
        run(folder, load_config(), folder.runs / "a")


def test_a_federation_that_is_not_up_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no federation is up in .*: accord federation up"):
        run(Folder(tmp_path), load_config(), tmp_path / "runs" / "a")


def test_ctrl_c_stops_the_run_at_the_server(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(Told):
        def started(self, *given: Any) -> None:
            raise KeyboardInterrupt

    stopped: list[str] = []
    follower(monkeypatch, STARTED, ended("finished:stopped"))
    monkeypatch.setattr(running, "stop", lambda home, number: stopped.append(number))
    with pytest.raises(KeyboardInterrupt):
        run(folder, load_config(), folder.runs / "a", [Impatient()])
    assert stopped == ["7"]


def test_the_reason_is_the_last_sentence_of_ours(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    assert reason(log) == ""
    log.write_text("Traceback\naccord.errors.DataError: an old one\n\x1b[91mERROR \x1b[0m: Exit Code: 201\n")
    assert reason(log) == "an old one"
    with log.open("a") as file:
        file.write(
            "x\naccord.errors.RunError: no site takes part in this run:\n'pau': why\n\x1b[91mERROR \x1b[0m: 201\n"
        )
    assert reason(log) == "no site takes part in this run:\n'pau': why"
    log.write_text("first\nthe last word\n")
    assert reason(log) == ""
