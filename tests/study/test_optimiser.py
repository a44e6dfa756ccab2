"""Optuna's part in a search: proposals that depend on nothing but earlier blocks, and pruning, with a fake engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.config import RunConfig
from accord.errors import ConfigError
from accord.problems import PROBLEMS
from accord.settings import Search, Setting
from accord.study.optimiser import Past, judged, propose
from accord.study.results import TuningResult

SPACE = {"local.lr": Setting("lr", float, 0.05, search=Search(0.001, 1.0, log=True))}


def by_rate(config: RunConfig) -> float:
    """Best at a rate of 0.02."""
    return 1 / (1 + abs(config.local.lr - 0.02))


def searched(out: Path, trials: int = 17, **more: Any) -> TuningResult:
    return accord.tune(["fedavg", "fedprox"], trials=trials, rounds=6, sets=[f"out={out}"], **more)


def test_proposals_go_where_trials_did_well_and_are_the_same_again() -> None:
    rates = [10 ** (-3 + 3 * i / 19) for i in range(20)]
    past = [Past({"local.lr": rate}, -abs(rate - 0.02), {}) for rate in rates]
    past += [Past({"local.lr": 0.9}, None, {}), Past({"local.lr": 7.0}, 5.0, {})]  # failed; a default out of the range
    drawn = [float(str(propose(SPACE, past, "fedavg", number, 0)["local.lr"])) for number in range(10, 30)]
    assert drawn == [propose(SPACE, past, "fedavg", number, 0)["local.lr"] for number in range(10, 30)]
    assert len(set(drawn)) > 15
    assert sum(0.01 < rate < 0.04 for rate in drawn) > 10, "a random draw would be there one time in five"
    assert propose(SPACE, past, "fedavg", 10, 1) != propose(SPACE, past, "fedavg", 10, 0)


def test_choices_and_whole_numbers_keep_their_kind() -> None:
    space = {
        "a": Setting("a", int, 1, search=Search(1, 40)),
        "b": Setting("b", str, "x", search=Search(choices=("x", "y"))),
    }
    past = [Past({"a": n, "b": "x" if n % 2 else "y"}, float(n), {}) for n in range(1, 13)]
    for number in range(10, 15):
        drawn = propose(space, past, "m", number, 0)
        assert isinstance(drawn["a"], int)
        assert drawn["b"] in ("x", "y")


def test_a_search_that_was_stopped_comes_to_the_same(
    engine: Any,
    tmp_path: Path,
) -> None:
    engine.accuracy = by_rate
    whole = searched(tmp_path / "whole")
    assert all(len(choice.tried) == 17 for choice in whole.choices.values()), "as many trials for everybody"
    engine.stop_at, engine.error, engine.only = 2, KeyboardInterrupt(), "fedprox-12"
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "stopped")
    again = searched(tmp_path / "stopped")
    assert json.dumps(again.as_json()) == json.dumps(whole.as_json())
    best = whole.choices["fedavg"]
    drawn = {record["trial"]: record["settings"].get("local.lr", 0.05) for record in best.tried}
    assert abs(drawn[best.trial] - 0.02) == min(abs(rate - 0.02) for rate in drawn.values())


def test_poor_trials_are_pruned_by_the_median_of_earlier_blocks(
    engine: Any,
    tmp_path: Path,
) -> None:
    # trials 0 to 4 come to 0.5 in the end, 5 to 0.2 and 6 to 0.9: rounds r of 6 have r / 6 of that
    final = {5: 0.2, 6: 0.9, 7: 0.5}
    engine.accuracy = lambda config: final.get(int(config.name.rpartition("-")[2]), 0.5)
    result = searched(tmp_path, 8)
    assert set(result.pruned) == {("fedavg", 5), ("fedprox", 5)}
    # not before a third of the rounds, which is round 2: there it has 0.0667 and the median is 0.1667
    assert "pruned after round 2 of 6" in result.pruned["fedavg", 5]
    assert [record["score"] is None for record in result.choices["fedavg"].tried] == [False] * 5 + [True, False, False]
    assert result.choices["fedavg"].trial == 6
    engine.calls.clear()
    assert searched(tmp_path, 8).pruned == result.pruned
    assert engine.calls == [], "what was pruned stays so"


def test_what_is_pruned_goes_on_after_a_stop_as_if_there_was_none(
    engine: Any,
    tmp_path: Path,
) -> None:
    # its best rounds come first: only who remembers them knows that it is not worse than the median
    def rising(config: RunConfig) -> float:
        return 0.9 if config.name.endswith("-5") else 0.5

    engine.accuracy = rising
    engine.stop_at, engine.error, engine.only = 4, KeyboardInterrupt(), "fedavg-5"
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, 6)
    assert searched(tmp_path, 6).pruned == {}


def test_few_trials_need_no_optuna_and_many_say_how_to_get_it(
    engine: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    searched(tmp_path, 5)
    engine.calls.clear()
    with pytest.raises(ConfigError, match=r"pip install 'accord-fl\[tune\]', or ask for at most 5 trials"):
        searched(tmp_path / "many", 6)
    assert engine.calls == []


@pytest.mark.parametrize(
    ("record", "task", "personal", "expected"),
    [
        ({"accuracy": 0.5, "personal": {"mean": 0.75}}, "classification", False, 0.5),
        ({"accuracy": 0.5, "personal": {"mean": 0.75}}, "classification", True, 0.75),
        ({"rmse": 2.0, "accuracy": 0.5}, "regression", False, -2.0),  # of two errors the smaller is the better
        ({"personal": {"mean": 3.0}}, "regression", False, -3.0),
        ({"rmse": float("nan")}, "regression", False, None),
        ({"loss": 1.0}, "tokens", False, None),
    ],
)
def test_a_trial_is_judged_by_its_tasks_leading_number(record: Any, task: str, personal: bool, expected: Any) -> None:
    assert judged(record, PROBLEMS[task], personal) == expected
