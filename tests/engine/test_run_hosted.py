"""A run whose clients are somebody else's: what it asks of whoever hosts them, when, and what it writes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from accord.config import load_config
from accord.engine.evaluation import evaluator_of
from accord.engine.federation import Federation
from accord.engine.folder import new_folder
from accord.engine.hosting import Simulation
from accord.engine.run import carry_out
from accord.observe import Audience

SMALL = ["data.limit=60", "partition.clients=2", "partition.name=iid", "clients.fraction=1", "model.name=linear"]


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
            settled=lambda round: self.heard.append(("settled", round)),
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
    assert heard == [("begins", False, []), ("settled", 2), ("settled", 3), "ends"]


def test_a_run_tells_of_its_sites_and_of_classes_where_it_knows_them(tmp_path: Path) -> None:
    hosted(tmp_path, "rounds=1", "name=here")
    hosted(tmp_path, "rounds=1", "name=there", real=True)
    hosted(tmp_path, "rounds=1", "name=unseen", "evaluate.clients=false")
    told = {
        name: [(tmp_path / name / file).exists() for file in ("sites.csv", "division.json")]
        for name in ("here", "there", "unseen")
    }
    assert told == {"here": [True, True], "there": [True, False], "unseen": [False, True]}


def test_nothing_is_settled_without_checkpoints_and_judges_at_clients_have_test_data(tmp_path: Path) -> None:
    _, heard = hosted(tmp_path, "rounds=2", "checkpoint.every=0", "algorithm.name=ditto", "evaluate.personal=true")
    assert heard == [("begins", True, []), "ends"]
