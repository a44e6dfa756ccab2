"""The runs of a study as tasks of Ray: the same bits, failures by their kind, what cannot work refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.config import RunConfig
from accord.errors import ConfigError, DataError, RunError
from accord.executors.ray import session
from accord.observe import Observer
from accord.study import cluster
from study.test_pool import Ear, fail, folders, square
from support.study import SETS, Breaker, Notes

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    with session.joined(3):
        yield


class Once:
    """Its process ends when it is first carried out."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, tell: Any) -> None:
        import os

        if not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        tell("again")


@pytest.mark.federation
@pytest.mark.usefixtures("ray_here")
def test_pieces_are_carried_out_and_what_fails_is_told_by_kind(tmp_path: Path) -> None:
    ear = Ear()
    works = [
        partial(square, 3),
        partial(fail, DataError("bad")),
        partial(fail, ValueError("odd")),
        Once(tmp_path / "x"),
    ]
    cluster.side_by_side(works, 3, ear)
    assert ear.heard[0] == [{"square": 9, "core": 1}, None]
    assert ear.heard[1] == [(DataError, "bad")]
    assert ear.heard[2] == [(RunError, "ValueError: odd")]
    assert ear.heard[3] == ["again", None], "a lost process costs a new one"
    assert ear.most <= 3


def breaking(config: RunConfig) -> list[Observer]:
    return [Breaker(RunError("the disk is full"))] if config.seed == 1 else []


@pytest.mark.federation
@pytest.mark.usefixtures("ray_here")
def test_a_comparison_has_the_same_bits_and_a_failed_run_is_named(asked: dict[str, Any], tmp_path: Path) -> None:
    alone = accord.compare(["fedavg"], seeds=(0, 1), **asked)
    asked["sets"] = [*SETS, f"out={tmp_path / 'on_ray'}"]
    notes = Notes()
    broken = accord.compare(["fedavg"], seeds=(0, 1), jobs=2, on="ray", observers=breaking, progress=notes, **asked)
    assert broken.failed == {("fedavg", 1): "the disk is full"}
    assert notes.lines == ["1/2 fedavg-0 new", "2/2 fedavg-1 new", "fedavg-1 failed: the disk is full"]
    again = accord.compare(["fedavg"], seeds=(0, 1), on="ray", progress=notes, **asked)
    assert notes.lines[-1] == "2/2 fedavg-1 begun"
    assert folders(again) == folders(alone)
    assert again.metrics == alone.metrics


def test_what_cannot_work_is_refused_before_any_run(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"on: 'mars' is unknown\. Allowed: here, ray"):
        accord.compare(["fedavg"], seeds=(0,), on="mars", **asked)  # type: ignore[arg-type]
    asked["sets"] = [*asked["sets"], "executor=ray"]
    with pytest.raises(ConfigError, match="a run would wait for cores that runs like it hold"):
        accord.tune(["fedavg"], trials=2, on="ray", **asked)
    monkeypatch.setattr(session, "missing", lambda: True)
    with pytest.raises(ConfigError, match=r"runs on Ray need Ray: pip install 'accord-fl\[ray\]'"):
        accord.compare(["fedavg"], seeds=(0,), on="ray", **asked)
