"""Where a round's time goes: every moment in one phase, and the engine as it was before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from accord.config import RunConfig, load_config
from accord.engine.profile import CLIENT, PHASES, POINTS, Stopwatch, profile
from accord.errors import ConfigError

SMALL = ["partition.clients=4", "data.limit=80", "model.name=mlp", "device=cpu", "rounds=9", "partition.min_size=1"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock set by hand."""
    now = [0.0]
    monkeypatch.setattr("accord.engine.profile.time.perf_counter", lambda: now[0])
    return now


def test_every_moment_belongs_to_one_phase(clock: list[float]) -> None:
    watch = Stopwatch(torch.device("cpu"))

    def lasts(seconds: float) -> None:
        clock[0] += seconds

    def client() -> None:
        lasts(1)
        watch.around(lasts, "forward")(2)
        watch.around(lasts, "backward")(4)
        lasts(8)

    def evaluation() -> None:
        watch.around(lasts, "forward")(16)  # a model that is judged is no client's forward pass

    watch.around(client, "other")()
    watch.around(evaluation, "evaluate")()
    lasts(32)
    watch.switch("engine")
    expected = {"forward": 2.0, "backward": 4.0, "other": 9.0, "evaluate": 16.0, "engine": 32.0}
    assert watch.seconds == {phase: expected.get(phase, 0.0) for phase in PHASES}


def test_a_phase_that_fails_ends_too(clock: list[float]) -> None:
    watch = Stopwatch(torch.device("cpu"))

    def fails() -> None:
        clock[0] += 1
        raise ValueError

    with pytest.raises(ValueError):
        watch.around(fails, "checkpoint")()
    assert watch.phase == "engine"
    assert watch.seconds["checkpoint"] == 1


@pytest.mark.parametrize("name", ["fedavg", "fedufo"])
def test_all_phases_of_a_run_are_seen_and_nothing_stays_wrapped(name: str) -> None:
    before = [getattr(owner, attribute) for owner, attribute, _ in POINTS]
    found = profile(load_config(None, [*SMALL, f"algorithm.name={name}"]), 2)
    assert [getattr(owner, attribute) for owner, attribute, _ in POINTS] == before
    assert list(found.seconds) == list(PHASES)
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert found.total == pytest.approx(sum(found.seconds.values()))
    assert set(CLIENT) < set(PHASES)


@pytest.mark.parametrize(("rounds", "message"), [(0, "at least 1 round"), (9, "rounds = 10 or more")])
def test_rounds_that_cannot_be_profiled(rounds: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        profile(load_config(None, SMALL), rounds)


def test_what_is_profiled_is_the_run_with_every_round_judged_and_saved(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round to warm up, and two more; what they took is divided by two."""
    heard: list[Any] = []

    def run(config: RunConfig, *, data: Any, model: Any, observers: Any) -> None:
        heard.append((config, data, model, Path(config.out).is_dir()))
        (rounds,) = observers
        for number in (1, 2, 3):
            clock[0] += 100.0 if number == 1 else 3.0
            rounds.round_ended(number, {})
        raise AssertionError("the last round ends it")

    monkeypatch.setattr("accord.engine.profile.run", run)
    asked = ["rounds=3", "name=mine", "evaluate.every=4", "evaluate.batch_size=7", "checkpoint.every=0", "seed=5"]
    found = profile(load_config(None, asked), 2, data="data", model="model")  # type: ignore[arg-type]
    config, data, model, there = heard[0]
    assert (config.executor, config.compile, config.name, data, model) == ("sequential", False, "", "data", "model")
    assert (config.evaluate.every, config.evaluate.batch_size, config.checkpoint.every) == (1, 7, 1)
    assert (config.seed, config.rounds, there, Path(config.out).exists()) == (5, 3, True, False)
    assert (found.rounds, found.total, found.seconds["engine"]) == (2, 3.0, 3.0)
    with pytest.raises(ConfigError, match="needs rounds = 2 or more in the configuration, which has 1"):
        profile(load_config(None, ["rounds=1"]), 1)
