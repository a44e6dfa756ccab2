"""A run whose clients are somebody else's: what it asks of whoever hosts them, when, and what it writes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accord.config import load_config
from accord.engine import run
from accord.engine.evaluation import evaluator_of
from accord.engine.federation import Federation
from accord.engine.folder import new_folder
from accord.engine.hosting import Simulation
from accord.engine.run import carry_out
from accord.engine.store import ClientStore
from accord.errors import RunError
from accord.observe import Audience

SMALL = ["data.limit=60", "partition.clients=2", "partition.name=iid", "clients.fraction=1", "model.name=linear"]


def saved(round: int) -> str:
    return f"round-{round:06d}"


class Hosted(Simulation):
    """A simulation that tells what it was asked, and whose clients sent something before the first round."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.heard: list[Any] = []

    def clients(self, store: Any, own: Any, audience: Any, *, with_test: bool, kept: Any) -> Any:
        self.heard.append(("begins", with_test, sorted(kept)))
        real = super().clients(store, own, audience, with_test=with_test, kept=kept)
        began = SimpleNamespace(bytes_up=7, bytes_down=5, missing={1: "Traceback\nValueError: late", 0: "away"})
        under_way = {"clock": {"extra": next(iter(self.federation.model.init()[0].values()))}}
        door: Any = SimpleNamespace(
            **{name: getattr(real, name) for name in ("exchange", "rehearsal", "world", "memory_of")},
            start=lambda: SimpleNamespace(**vars(began), __call__=None),
            under_way=lambda: under_way,
            settled=lambda round: self.heard.append(("settled", round, (store.folder.parent / saved(round)).exists())),
            close=lambda: (self.heard.append("ends"), real.close()),
        )
        return door


def hosted(tmp_path: Path, *sets: str, real: bool = False) -> tuple[list[dict[str, Any]], list[Any]]:
    config = load_config(sets=[*SMALL, "executor=sequential", "device=cpu", f"out={tmp_path}", *sets])
    federation = replace(Federation.build(config), real=real)
    hosting = Hosted(federation)
    folder = new_folder(config, federation.identity)
    outcome = carry_out(federation, evaluator_of(federation), folder, Audience(()), hosting)
    return outcome.metrics, hosting.heard


def test_what_was_sent_before_the_first_round_stands_in_its_line_alone(tmp_path: Path) -> None:
    metrics, heard = hosted(tmp_path, "rounds=3", "checkpoint.every=2")
    first, *others = metrics
    assert (first["start_bytes_up"], first["start_bytes_down"]) == (7, 5)
    assert first["missing"] == {"0": "away", "1": "ValueError: late"}
    assert all(not {"start_bytes_up", "start_bytes_down", "missing"} & line.keys() for line in others)
    assert heard == [("begins", False, []), ("settled", 2, True), ("settled", 3, True), "ends"]


def test_a_run_tells_of_its_sites_and_of_classes_where_it_knows_them(tmp_path: Path) -> None:
    hosted(tmp_path, "rounds=1", "name=here")
    hosted(tmp_path, "rounds=1", "name=there", real=True)
    hosted(tmp_path, "rounds=1", "name=unseen", "evaluate.clients=false")
    told = {
        name: [(tmp_path / name / file).exists() for file in ("sites.csv", "division.json")]
        for name in ("here", "there", "unseen")
    }
    assert told == {"here": [True, True], "there": [True, False], "unseen": [False, True]}


def test_a_simulation_begins_with_its_tasks_and_where_its_clock_was(tmp_path: Path) -> None:
    asked: list[Any] = []
    federation: Any = SimpleNamespace(
        executor=lambda done, **how: asked.append((done, how)) or "executor", clock=lambda kept: ("clock of", kept)
    )
    store = ClientStore(tmp_path, np.ones(1, np.int64), 1)
    own, audience = SimpleNamespace(tasks={"personal": "a task"}), SimpleNamespace(client_done_in_round=len)
    kept: Any = {"clock": {}}
    house: Any = Simulation(federation).clients(store, own, audience, with_test=True, kept=kept)  # type: ignore[arg-type]
    assert asked == [(len, {"with_test": True, "more": own.tasks})]
    assert (house.executor, house.clock) == ("executor", ("clock of", kept))
    assert house.store is store
    Simulation(federation).clients(store, own, audience, with_test=False, kept=kept)  # type: ignore[arg-type]
    assert not asked[1][1]["with_test"]


def test_with_its_summary_a_run_is_over_and_so_it_is_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise RunError("no space left")

    monkeypatch.setattr(run, "write_model", full)
    with pytest.raises(RunError, match="no space left"):
        hosted(tmp_path, "rounds=1", "name=x")
    assert not (tmp_path / "x" / "summary.json").exists()
    assert (tmp_path / "x" / "checkpoint" / saved(1)).exists()


def test_clients_end_with_a_run_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RunError("a measure failed")

    monkeypatch.setattr("accord.measures.Evaluator.round", broken)
    heard: list[Any] = []
    monkeypatch.setattr(Hosted, "heard", property(lambda self: heard, lambda self, value: None), raising=False)
    with pytest.raises(RunError, match="a measure failed"):
        hosted(tmp_path, "rounds=1")
    assert heard[-1] == "ends"


def test_nothing_is_settled_without_checkpoints_and_judges_at_clients_have_test_data(tmp_path: Path) -> None:
    _, heard = hosted(tmp_path, "rounds=2", "checkpoint.every=0", "algorithm.name=ditto", "evaluate.personal=true")
    assert heard == [("begins", True, []), "ends"]
