"""A run on a federation: started by Flower at the server, followed by what it writes into its folder."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accord.config import RunConfig, to_toml
from accord.engine.files import write_atomic
from accord.errors import ConfigError, RunError
from accord.federation import superlink
from accord.federation.control import begin_following, stop
from accord.federation.folder import Folder, read_state
from accord.federation.processes import last_lines
from accord.federation.supernode import write_flower_settings
from accord.observe import Observer

OURS = re.compile(r"^accord\.errors\.\w+: (.*?)(?=^\S*ERROR|\Z)", re.MULTILINE | re.DOTALL)
LOOK = 0.2  # seconds between two looks into the folder
APP = Path(__file__).resolve().parent / "app"
Record = dict[str, Any]


def run(folder: Folder, config: RunConfig, place: Path, observers: Sequence[Observer] = ()) -> Record:
    """Run a method on the federation in `folder` and return its summary; a run begun in `place` goes on there."""
    state = read_state(folder)
    if state is None or not superlink.answers(state, folder.certificates.authority):
        raise ConfigError(f"no federation is up in {folder.path}: accord federation up {folder.path}")
    asked = folder.server / "asked"
    write_atomic(asked / f"{place.name}.toml", to_toml(config))
    values = {"config": str(asked / f"{place.name}.toml"), "folder": str(place.resolve())}
    settings = write_flower_settings(asked / f"{place.name}.flower.toml", values)
    log = folder.server / f"{place.name}.log"
    done = len(read_metrics(place))
    follower = begin_following(folder.home, APP, settings, log)
    with _ended(follower):
        begun = _line(follower)
        if not begun.get("success"):
            raise RunError(f"the SuperLink did not start the run: {begun.get('error-message', begun)}")
        try:
            _tell(follower, place, config, done, observers)
        except KeyboardInterrupt:
            stop(folder.home, str(begun["run-id"]))
            raise
        return _summary(place, _line(follower), log)


@contextmanager
def _ended(follower: subprocess.Popen[str]) -> Iterator[None]:
    """Whatever happens, the process that follows does not stay."""
    try:
        with follower:
            yield
    finally:
        if follower.poll() is None:
            follower.kill()


def _line(follower: subprocess.Popen[str]) -> Record:
    assert follower.stdout is not None
    line = follower.stdout.readline()
    if not line:
        assert follower.stderr is not None
        said = follower.stderr.read().strip().splitlines()
        raise RunError(f"Flower's command ended without an answer: {said[-1] if said else 'it said nothing'}")
    answer: Record = json.loads(line)
    return answer


def _tell(
    follower: subprocess.Popen[str], place: Path, config: RunConfig, known: int, observers: Sequence[Observer]
) -> None:
    """Tell the observers of every round after the `known` ones, until the run is over."""
    for observer in observers:
        observer.started(config, place, config.rounds, known)
    over = False
    while not over:
        try:
            follower.wait(LOOK)
            over = True
        except subprocess.TimeoutExpired:
            pass
        records = read_metrics(place)
        for record in records[known:]:
            for observer in observers:
                observer.round_ended(int(record["round"]), record)
        known = max(known, len(records))


def read_metrics(place: Path) -> list[Record]:
    """The whole lines of metrics.jsonl; the last may be in the making."""
    try:
        text = (place / "metrics.jsonl").read_text(encoding="utf-8")
    except OSError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1]]


def _summary(place: Path, answer: Mapping[str, Any], log: Path) -> Record:
    """What the run came down to, or why it did not."""
    status = answer["runs"][0]["status"] if answer.get("success") and answer.get("runs") else "lost"
    go_on = f"go on with `accord federation run --resume {place}`"
    if status == "lost":
        raise RunError(f"the SuperLink is gone: start it again with `accord federation up`, then {go_on}")
    if status != "finished:completed":
        raise RunError(f"the run ended as {status}, see {log}: {reason(log) or last_lines(log)}; {go_on}")
    summary: Record = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    return summary


def reason(log: Path) -> str:
    """The sentence by which the server's app ended, if it was one of ours: Flower itself says only that it did."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = OURS.findall(text)
    return str(found[-1]).strip() if found else ""
