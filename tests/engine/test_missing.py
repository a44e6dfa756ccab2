"""Who was left out of a run: counted, named, and told apart from simulated drop-outs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accord
from accord.core.task import Part
from accord.engine.federation import Federation
from accord.engine.missing import account, line, named
from accord.parts.averaging import averaging

OUT = "dropped out (simulated)"


def test_rounds_are_counted_by_client_with_the_last_reason() -> None:
    records: list[dict[str, Any]] = [
        {"round": 1, "missing": {"10": "ValueError: a", "2": OUT}},
        {"round": 2},
        {"round": 3, "missing": {"10": "KeyError: b", "9": "ValueError: c"}, "skipped": "nobody answered"},
        {"round": 4, "missing": {"2": OUT, "10": OUT}, "skipped": "nobody answered"},
        {"round": 5},
    ]
    found = account(records)
    assert found == {
        "left_out": {"9": {"times": 1, "why": "ValueError: c"}, "10": {"times": 2, "why": "KeyError: b"}},
        "dropped_out": 3,
        "skipped_rounds": 2,
    }
    assert list(found["left_out"]) == ["9", "10"]
    assert account([]) == {"left_out": {}, "dropped_out": 0, "skipped_rounds": 0}


def test_clients_that_have_names_are_called_by_them() -> None:
    records = [{"missing": {"1": "ValueError: a", "0": "KeyError: b"}}]
    found = account(records, ["Lyon", "Aix"].__getitem__)
    assert list(found["left_out"].items()) == [
        ("Lyon", {"times": 1, "why": "KeyError: b"}),
        ("Aix", {"times": 1, "why": "ValueError: a"}),
    ]
    assert line(found).startswith("2 clients were left out: Lyon (once: KeyError: b), Aix (once")


def test_of_a_traceback_the_error_is_kept() -> None:
    assert named({7: "Traceback:\n  somewhere\nValueError: no\n", 3: ""}) == {"3": "", "7": "ValueError: no"}


def test_the_line_names_a_few() -> None:
    assert line({}) == line({"left_out": {}}) == ""
    assert line({"left_out": {"4": {"times": 1, "why": "w"}}}) == "1 client was left out: 4 (once: w)"
    five = line({"left_out": {str(k): {"times": 2, "why": "w"} for k in range(5)}})
    assert five == "5 clients were left out: " + ", ".join(f"{k} (2 times: w)" for k in range(5))
    many = line({"left_out": {str(k): {"times": 2, "why": "w"} for k in range(9)}})
    assert many.startswith("9 clients were left out: 0 (2 times: w), 1 (2 times: w), ")
    assert many.endswith("4 (2 times: w), and 4 more (summary.json names them)")


@dataclass(frozen=True)
class Unwilling(Part):
    """Client 1 fails in some rounds, if it is not told otherwise in its first two."""

    rounds: tuple[int, ...] = (0, 1)

    def begin(self, model: Any, job: Any) -> dict[str, Any]:
        if int(job.info["client"]) == 1 and int(job.info["round"]) in self.rounds:
            raise ValueError("not today")
        return {}


def unwilling_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> accord.Outcome:
    monkeypatch.setattr("accord.engine.federation.build_algorithm", lambda _, setup: averaging(setup, Unwilling()))
    sets = [
        "rounds=3",
        "partition.clients=4",
        "clients.count=4",
        "data.limit=80",
        "model.name=mlp",
        "model.hidden=[4]",
        "executor=sequential",
    ]
    sets += [f"out={tmp_path}", "name=x", "clients.tolerate=0.25"]
    return accord.run(accord.load_config(sets=sets))


def test_a_runs_summary_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = unwilling_run(tmp_path, monkeypatch)
    assert [record.get("missing") for record in outcome.metrics] == [*[{"1": "ValueError: not today"}] * 2, None]
    assert outcome.summary["left_out"] == {"1": {"times": 2, "why": "ValueError: not today"}}
    assert outcome.summary["dropped_out"] == outcome.summary["skipped_rounds"] == 0
    assert json.loads((tmp_path / "x" / "summary.json").read_text())["left_out"] == outcome.summary["left_out"]


def test_who_fails_when_all_is_over_is_left_out_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last round all clients train once more, to be judged by their own models."""
    part = Unwilling((2,))  # rounds are counted from 0, and there are two
    monkeypatch.setattr("accord.engine.federation.build_algorithm", lambda _, setup: averaging(setup, part))
    rng = np.random.default_rng(0)
    names = [("Aix", "Lyon", "Pau")[place % 3] for place in range(30)]
    data = accord.from_arrays(rng.normal(size=(30, 2)).astype(np.float32), rng.integers(0, 2, 30), clients=names)
    sets = ["rounds=2", "model.name=linear", "executor=sequential", "evaluate.personal=true", f"out={tmp_path}"]
    config = accord.load_config(sets=[*sets, "clients.tolerate=0.4", "clients.fraction=1", "device=cpu"])
    outcome = accord.run(config, data=data)
    assert all("missing" not in record for record in outcome.metrics)
    assert outcome.summary["left_out"] == {"Lyon": {"times": 1, "why": "ValueError: not today"}}
    assert outcome.summary["personal_accuracy"]["clients"] == 2


def test_who_was_missing_before_the_first_round_is_in_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Federation.first_state

    def early(self: Federation, exchange: Any) -> Any:
        exchange.missing |= {1: "KeyError: early", 3: "Traceback:\nValueError: too early"}
        return usual(self, exchange)

    monkeypatch.setattr(Federation, "first_state", early)
    outcome = unwilling_run(tmp_path, monkeypatch)
    assert [record.get("missing") for record in outcome.metrics] == [
        {"1": "ValueError: not today", "3": "ValueError: too early"},  # of two reasons the later one
        {"1": "ValueError: not today"},
        None,
    ]
    assert {client: one["times"] for client, one in outcome.summary["left_out"].items()} == {"1": 2, "3": 1}
