"""What leaves a client, counted by hand; and the examples, run as a reader would."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import accord
from accord.config import load_config
from accord.core.methods import ALGORITHMS
from accord.engine.traffic import Traffic, measure_traffic
from accord.errors import ConfigError
from accord.measures import MEASURES

EXAMPLES = Path(__file__).parents[2] / "examples"
MODEL = 4 * 199_210  # bytes of the 2NN


SMALL = ["data.limit=400", "partition.clients=4", "rounds=4"]


def traffic(*sets: str) -> Traffic:
    return measure_traffic(load_config(None, [*SMALL, *sets]))


def parcels(*sets: str) -> set[tuple[str, str, str, int]]:
    return {(p.task, p.direction, p.tree, p.bytes) for p in traffic(*sets)}


def rows(found: Traffic) -> dict[tuple[str, str, str], tuple[str, str, bool]]:
    return {
        (p.task, p.direction, p.tree): (p.when, p.kind.word if p.kind else "", p.passed_on)
        for p in found
        if p.task != "evaluate"
    }


def test_fedavg_sends_the_model_and_scaffold_twice_as_much() -> None:
    judged = {("evaluate", "down", "model", MODEL), ("evaluate", "up", "score", 3 * 8)}
    plain = {("train", "down", "model", MODEL), ("train", "up", "model", MODEL)} | judged
    assert parcels() == plain
    control = {("train", "down", "control", MODEL), ("train", "up", "control_change", MODEL)}
    assert parcels("algorithm.name=scaffold") == plain | control
    assert parcels("algorithm.name=local") == parcels("algorithm.name=centralized") == set()


def test_kinds_times_and_what_others_get_to_see() -> None:
    model = {("train", "down", "model"): ("every round", "", False)}
    update = {("train", "up", "model"): ("every round", "update", False)}
    found = traffic("algorithm.name=fedmix")
    assert rows(found) == {
        ("means", "up", "means"): ("once", "mean", False),
        ("train", "down", "means"): ("every round", "", True),
        **model,
        **update,
    }
    assert found.needs_each == ["passes each client's means on"]
    assert found.numbers["train"] == ("loss", "seen", "steps")
    moments = {
        ("moments", "down", "model"): ("some rounds", "", False),
        ("moments", "up", "moments"): ("some rounds", "statistic", False),
    }
    sphere = traffic("algorithm.name=spherefed")
    assert rows(sphere) == model | update | moments
    assert sphere.needs_each == []
    apple = rows(traffic("algorithm.name=apple"))
    assert apple[("train", "down", "cores")] == ("every round", "", True), "from the second round on"
    assert not apple[("train", "down", "share")][2]


def test_own_method_registers_and_runs(tmp_path: Path) -> None:
    runpy.run_path(str(EXAMPLES / "own_method.py"))
    try:
        sets = ["algorithm.name=fednear", "algorithm.weight=0.5", "rounds=2", "data.limit=200", "partition.clients=4"]
        outcome = accord.run(load_config(None, [*sets, "executor=sequential", f"out={tmp_path}"]))
        assert outcome.summary["accuracy"] is not None
    finally:
        ALGORITHMS._entries.pop("fednear")  # the registry is shared by all tests of this process


def test_own_metric_registers_and_runs(tmp_path: Path) -> None:
    runpy.run_path(str(EXAMPLES / "own_metric.py"))
    try:
        sets = ["evaluate.top3_accuracy=true", "rounds=1", "data.limit=200", "partition.clients=4", f"out={tmp_path}"]
        summary = accord.run(load_config(None, [*sets, "executor=sequential"])).summary
        assert summary["accuracy"] < summary["top3_accuracy"] <= 1
        assert summary["client_top3_accuracy"]["worst"] <= summary["client_top3_accuracy"]["best"]
    finally:
        MEASURES._entries.pop("top3_accuracy")


def test_own_data_gives_data_and_a_network() -> None:
    module = runpy.run_path(str(EXAMPLES / "own_data.py"))
    assert module["data"].train_clients.max() == 7
    assert module["config"].algorithm.name == "scaffold"


def test_unseen_epochs_without_unseen_clients_is_refused_before_the_first_round(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"partition\.unseen"):
        accord.run(load_config(None, ["evaluate.unseen_epochs=2", f"out={tmp_path}"]))
    assert not list(tmp_path.iterdir())
