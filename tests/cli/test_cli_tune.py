"""compare --tune: which trials, on which data, which one wins, and what is done again after a stop."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accord.config import RunConfig, load_config
from accord.errors import ConfigError, DivergedError

TUNE = ("compare", "--seeds", "3,4", "--rounds", 6, "--name", "x", "--tune", 4)


def by_rate(config: RunConfig) -> float:
    """Small rates are better."""
    return 1 - config.local.lr


def settings(name: str) -> RunConfig:
    return load_config(Path("runs/x") / name / "config.toml")


def test_the_best_trial_is_used_for_all_seeds(accord: Callable[..., Any], engine: Any) -> None:
    engine.accuracy = by_rate
    result = accord(*TUNE, "--algorithms", "fedavg,fedprox", "--tune-rounds", 9)
    assert result.exit_code == 0, result.output
    assert [folder.name for folder in engine.folders] == [
        *(f"fedavg-{n}" for n in range(4)), *(f"fedprox-{n}" for n in range(4)),
        "fedavg-3", "fedavg-4", "fedprox-3", "fedprox-4",
    ]  # fmt: skip
    first = settings("tune/fedprox-0")
    assert (first.local.lr, first.algorithm.options["mu"]) == (0.05, 0.01), "trial 0 is the settings as they are"
    for number in range(4):
        trial = settings(f"tune/fedprox-{number}")
        assert (trial.seed, trial.rounds) == (3, 9)
        assert (trial.evaluate.split, trial.partition.validation) == ("validation", 0.1)
        assert 0.005 <= trial.local.lr <= 0.5
        assert 0.001 <= trial.algorithm.options["mu"] <= 1
    rates = [settings(f"tune/fedprox-{n}").local.lr for n in range(4)]
    best = settings(f"tune/fedprox-{int(np.argmin(rates))}")
    for seed in (3, 4):
        final = settings(f"fedprox-{seed}")
        assert (final.local, final.algorithm) == (best.local, best.algorithm)
        assert (final.rounds, final.evaluate.split, final.partition.validation) == (6, "test", 0)
    tuning = json.loads(Path("runs/x/compare.json").read_text())["tuning"]
    chosen = tuning["algorithms"]["fedprox"]
    assert chosen["trial"] == np.argmin(rates)
    # round r of 9 has r / 9 of the final accuracy, and the last fifth are those above 7.2, so 8 and 9
    assert chosen["score"] == pytest.approx(8.5 / 9 * (1 - min(rates)))
    assert [entry["trial"] for entry in chosen["tried"]] == [0, 1, 2, 3]
    assert f"local.lr={min(rates)!r}" in Path("runs/x/table.md").read_text()
    assert "10 % of each client's training data, held out in the trials only" in result.stderr
    assert "fedprox: trial" in result.stderr


def test_a_tie_goes_to_the_settings_as_they_are(accord: Callable[..., Any], engine: Any) -> None:
    assert accord(*TUNE, "--algorithms", "fedavg").exit_code == 0
    assert settings("fedavg-3").local.lr == 0.05


def test_personal_methods_are_judged_by_personal_accuracy(accord: Callable[..., Any], engine: Any) -> None:
    engine.accuracy = by_rate  # the fake's personal accuracy is one minus that: large rates are better
    assert accord(*TUNE, "--algorithms", "ditto").exit_code == 0
    rates = [settings(f"tune/ditto-{n}").local.lr for n in range(4)]
    assert settings("ditto-3").local.lr == max(rates)
    assert settings("ditto-3").evaluate.options["personal"] == "auto", (
        "measured in the runs only where it was asked for"
    )
    chosen = json.loads(Path("runs/x/compare.json").read_text())["tuning"]["algorithms"]["ditto"]
    assert (chosen["judged_by"], chosen["score"]) == ("personal accuracy", pytest.approx(max(rates)))


def test_own_validation_data_is_kept_for_the_runs(accord: Callable[..., Any], engine: Any) -> None:
    assert accord(*TUNE, "--algorithms", "fedavg", "--set", "partition.validation=0.2").exit_code == 0
    assert settings("tune/fedavg-0").partition.validation == settings("fedavg-3").partition.validation == 0.2


def test_a_trial_that_diverges_is_the_worst_and_not_repeated(accord: Callable[..., Any], engine: Any) -> None:
    engine.accuracy = lambda config: 0.1 if config.name == "fedavg-0" else 0.05
    engine.stop_at, engine.error, engine.only = 2, DivergedError("the loss is nan"), "fedavg-0"
    command = (*TUNE, "--algorithms", "fedavg")
    result = accord(*command)
    assert result.exit_code == 0, result.output
    assert "the loss is nan" in result.stderr
    chosen = json.loads(Path("runs/x/compare.json").read_text())["tuning"]["algorithms"]["fedavg"]
    assert chosen["trial"] == 1
    assert chosen["tried"][0] == {"trial": 0, "settings": {}, "score": None, "failed": "the loss is nan"}
    engine.folders.clear()
    assert accord(*command).exit_code == 0
    assert engine.folders == []


def test_when_all_trials_fail_the_settings_stay(accord: Callable[..., Any], engine: Any) -> None:
    engine.accuracy = by_rate
    engine.stop_at, engine.error, engine.always = 2, DivergedError("the loss is nan"), True
    result = accord(*TUNE, "--algorithms", "fedavg", "--tune-rounds", 3)
    assert result.exit_code == 1  # the runs diverge too
    assert "all 4 trials failed" in result.stderr
    assert settings("fedavg-3").local.lr == 0.05


def test_what_a_method_refuses_is_the_worst(accord: Callable[..., Any], engine: Any) -> None:
    engine.stop_at, engine.error, engine.only = 1, ConfigError("lr times lam is too large"), "fedavg-2"
    assert accord(*TUNE, "--algorithms", "fedavg").exit_code == 0
    tried = json.loads(Path("runs/x/compare.json").read_text())["tuning"]["algorithms"]["fedavg"]["tried"]
    assert [entry["score"] is None for entry in tried] == [False, False, True, False]
    engine.stop_at, engine.error, engine.only = 1, ConfigError("this model does not fit"), "fedprox-0"
    result = accord(*TUNE, "--algorithms", "fedprox")
    assert result.exit_code == 2, "nothing was drawn in trial 0: the command is wrong"
    assert "this model does not fit" in result.stderr


def test_after_ctrl_c_the_same_command_goes_on(accord: Callable[..., Any], engine: Any) -> None:
    engine.stop_at, engine.error, engine.only = 2, KeyboardInterrupt(), "fedavg-2"
    command = (*TUNE, "--algorithms", "fedavg")
    result = accord(*command)
    assert result.exit_code == 130
    assert "run the same command again" in result.stderr
    engine.calls.clear()
    engine.folders.clear()
    assert accord(*command).exit_code == 0
    assert [kind for kind, _ in engine.calls] == ["resume", "run", "run", "run"]
    assert [folder.name for folder in engine.folders] == ["fedavg-2", "fedavg-3", "fedavg-3", "fedavg-4"]


def test_bad_requests(accord: Callable[..., Any], engine: Any) -> None:
    for more, words in (
        (("--tune", 1), "at least 2"),
        (("--tune", 3, "--tune-rounds", 0), "at least 1"),
        (("--tune-rounds", 3), "--tune N"),
        (("--tune", 3, "--set", "partition.test=holdout", "--set", "partition.holdout=0.95"), "partition.validation"),
    ):
        result = accord("compare", "--algorithms", "fedavg", *more)
        assert result.exit_code == 2
        assert words in result.stderr
    assert engine.calls == []


def test_tuning_gets_a_folder_of_its_own(accord: Callable[..., Any], engine: Any) -> None:
    base = ("compare", "--algorithms", "fedavg", "--seeds", "0", "--rounds", 2)
    for more in ((), ("--tune", 2), ("--tune", 3), ("--tune", 3, "--tune-rounds", 1), ("--tune", 3)):
        assert accord(*base, *more).exit_code == 0
    assert len(list(Path("runs").iterdir())) == 4
