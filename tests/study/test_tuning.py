"""accord.tune: the choice by hand from the trials' own files, own data, and what compare takes over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.config import load_config
from accord.errors import ConfigError, DataError, DivergedError
from accord.study.results import TuningResult
from support.study import Breaker, Notes, hospitals


def accuracies(folder: Path) -> list[float]:
    return [json.loads(line)["accuracy"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_trial_with_the_best_last_fifth_is_chosen(asked: dict[str, Any]) -> None:
    result = accord.tune(["fedavg", "fedprox"], trials=4, rounds=10, **asked)
    for algorithm in ("fedavg", "fedprox"):
        folders = [result.folder / "tune" / f"{algorithm}-{number}" for number in range(4)]
        scores = [sum(accuracies(folder)[8:10]) / 2 for folder in folders]
        choice = result.choices[algorithm]
        assert choice.trial == scores.index(max(scores))
        assert [record["score"] for record in choice.tried] == pytest.approx(scores)
        assert choice.score == pytest.approx(max(scores))
        assert choice.judged_by == "accuracy"
        best, plain = (load_config(folders[number] / "config.toml") for number in (choice.trial, 0))
        as_chosen = load_config(folders[0] / "config.toml", result.chosen[algorithm])
        assert (as_chosen.local, as_chosen.algorithm) == (best.local, best.algorithm)
        assert plain.local.lr == 0.05
        assert f"| {algorithm} | trial {choice.trial} of 4" in result.table()
    assert result.failed == {}
    assert "10 % of each client's training data, held out in the trials only" in result.table()
    assert (result.folder / "tuning.md").read_text() == result.table()
    written = json.loads((result.folder / "tuning.json").read_text())
    assert (written["rounds"], written["seed"], written["validation"]) == (10, 0, 0.1)
    assert written["algorithms"]["fedprox"]["settings"] == dict(result.choices["fedprox"].settings)


def test_compare_takes_the_trials_as_they_are(asked: dict[str, Any]) -> None:
    tuned = accord.tune(["fedavg"], trials=3, rounds=4, **asked)
    notes = Notes()
    result = accord.compare(["fedavg"], seeds=(0, 1), tune=3, tune_rounds=4, progress=notes, **asked)
    trial = tuned.choices["fedavg"].trial
    assert notes.lines == [
        "tuning", *(f"{n + 1}/3 fedavg-{n} finished" for n in range(3)), f"fedavg has trial {trial}",
        "1/2 fedavg-0 new", "2/2 fedavg-1 new",
    ]  # fmt: skip
    assert result.folder == tuned.folder
    assert isinstance(result.tuning, TuningResult)
    assert result.tuning.chosen == tuned.chosen
    assert result.table().endswith(tuned.table())
    lr = load_config(tuned.folder / "tune" / f"fedavg-{trial}" / "config.toml").local.lr
    for seed in (0, 1):
        config = load_config(result.folder / f"fedavg-{seed}" / "config.toml")
        assert (config.local.lr, config.rounds, config.partition.validation) == (lr, 5, 0)


def test_a_personal_method_is_judged_by_its_personal_accuracy(asked: dict[str, Any]) -> None:
    result = accord.tune(["ditto"], trials=2, **asked)
    summaries = [json.loads((result.folder / "tune" / f"ditto-{n}" / "summary.json").read_text()) for n in (0, 1)]
    means = [summary["personal_accuracy"]["mean"] for summary in summaries]
    choice = result.choices["ditto"]
    assert choice.judged_by == "personal accuracy"
    assert [record["score"] for record in choice.tried] == means
    assert choice.score == max(means)


def test_a_trial_that_diverges_is_in_failed_and_stays_there(asked: dict[str, Any]) -> None:
    diverged = Breaker(DivergedError("the loss is nan"))
    result = accord.tune(
        ["fedavg"], trials=2, observers=lambda config: [diverged] if config.name == "fedavg-1" else [], **asked
    )
    assert result.failed == {("fedavg", 1): "the loss is nan"}
    assert result.choices["fedavg"].trial == 0
    assert result.chosen == {"fedavg": []}
    notes = Notes()
    assert accord.tune(["fedavg"], trials=2, progress=notes, **asked).failed == result.failed
    assert notes.lines[1:3] == ["1/2 fedavg-0 finished", "2/2 fedavg-1 finished"]


def test_dealt_data_needs_validation_samples_of_its_own(asked: dict[str, Any]) -> None:
    dealt = {"clients": 3, "partition": "natural"}
    with pytest.raises(DataError, match=r"federate\(dataset, validation=0.1\)"):
        accord.tune(["fedavg"], trials=2, **{**asked, "data": accord.federate(hospitals(), **dealt)})
    data = accord.federate(hospitals(), validation=0.25, **dealt)
    result = accord.tune(["fedavg"], trials=2, **{**asked, "data": data})
    assert result.validation is None
    assert "judged on validation data (as the data came with it)" in result.table()
    # whole samples: what the accuracy of a trial can be follows from how many are held out
    held = len(data.validation.order)
    for value in accuracies(result.folder / "tune" / "fedavg-0"):
        assert value * held == pytest.approx(round(value * held), abs=1e-4)


def test_trials_are_checked_before_any_work(asked: dict[str, Any], tmp_path: Path) -> None:
    for wrong, words in (
        ({"trials": 1}, "at least 2"),
        ({"trials": 2, "rounds": 0}, "at least 1"),
        ({"trials": 2, "seed": -1}, "at least 0"),
        ({"trials": 2, "algorithms": ["nobody"]}, "unknown 'nobody'"),
    ):
        with pytest.raises(ConfigError, match=words):
            accord.tune(**{"algorithms": ["fedavg"], **asked, **wrong})
    assert list(tmp_path.iterdir()) == []
