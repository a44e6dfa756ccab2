"""From `[pace]` to the seconds of every client: each setting where it belongs, and numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accord.config import load_config
from accord.core.keys import Key
from accord.core.plan import Plan
from accord.core.types import Facts
from accord.engine.pacing import build_pace
from accord.errors import ConfigError
from accord.pace import Pace
from accord.pace.pace import digest_of
from accord.pace.spreads import lognormal, uniform
from accord.pace.traces import read_devices, read_intervals

KEY = Key(4)
NAMES = ["Aix", "Lyon", "Pau"]


def paced(*sets: str, unseen: frozenset[int] = frozenset()) -> Pace | None:
    """Three clients with 8, 4 and 2 samples, in batches of 2; the task `ask` has no steps."""
    facts = Facts((1,), 2, np.array([8, 4, 2]), unseen)
    data: Any = SimpleNamespace(name_of=lambda client: NAMES[client])
    tasks: Any = {"train": SimpleNamespace(plan=Plan(batch_size=2)), "ask": SimpleNamespace(plan=Plan(epochs=0))}
    return build_pace(load_config(sets=[f"pace.{one}" for one in sets]), data, facts, tasks, KEY)


def known(*sets: str, **more: Any) -> Pace:
    made = paced(*sets, **more)
    assert made is not None
    return made


def test_without_a_setting_there_is_none() -> None:
    assert paced() is None


def test_a_clients_seconds_by_hand() -> None:
    """Four steps of 3 s, 1.5 million bytes at 2 megabits (250,000 bytes) a second, and 0.5 s beside."""
    pace = known("step=3", "mbit=2", "latency=0.5", "deadline=40", "wait=7")
    assert pace.seconds("train", 0, 1_000_000, 500_000) == 12 + 6 + 0.5
    assert pace.seconds("train", 2, 0, 0) == 3.5
    assert pace.seconds("ask", 0, 0, 0) == pace.seconds("evaluate", 0, 0, 0) == 0.5
    assert (pace.deadline, pace.wait, pace.digest, pace.weighs) == (40.0, 7.0, "", True)
    assert pace.present(0, 0.0).tolist() == [True] * 3


def test_speed_and_network_have_spreads_and_draws_of_their_own() -> None:
    pace = known("step=3", "speed=uniform", "spread=2", "mbit=6", "network=lognormal", "network_spread=0.25")
    np.testing.assert_array_equal(pace.step, 3 * uniform(KEY.at("pace.speed"), 3, 2.0))
    np.testing.assert_array_equal(pace.mbit, 6 / lognormal(KEY.at("pace.network"), 3, 0.25))
    assert pace.latency.tolist() == [0.0] * 3


def test_presence_is_made_of_its_own_settings(tmp_path: Path) -> None:
    daily: Any = known("presence=daily", "share=0.25", "period=50")
    assert (daily.presence.terms.share, daily.presence.terms.period, daily.presence.terms.count) == (0.25, 50.0, 3)
    assert daily.presence.terms.key == KEY
    path = tmp_path / "there.csv"
    path.write_text("client,from,until\nLyon,0,10\n")
    traced = known("presence=trace", f"intervals={path}", "period=20", "step=1")
    assert [traced.present(0, now).tolist() for now in (5.0, 15.0, 25.0)] == [
        *([False, True, False], [False, False, False]),
        [False, True, False],
    ]
    assert traced.digest == digest_of(read_intervals(str(path), NAMES).digest)


def test_what_was_measured_stands_in_the_place_of_what_is_drawn(tmp_path: Path) -> None:
    path, when = tmp_path / "devices.csv", tmp_path / "there.csv"
    path.write_text("client,seconds_per_step,latency\nPau,1,4\nAix,2,5\nLyon,3,6\n")
    when.write_text("client,from,until\nLyon,0,10\n")
    pace = known(f"devices={path}", "step=9", "mbit=8", "latency=7", f"intervals={when}", "presence=trace")
    assert pace.step.tolist() == [2.0, 3.0, 1.0]
    assert pace.latency.tolist() == [5.0, 6.0, 4.0]
    assert pace.mbit.tolist() == [8.0] * 3
    both = read_devices(str(path), NAMES).digest, read_intervals(str(when), NAMES).digest
    assert pace.digest == digest_of(*both) != digest_of(both[0]) != digest_of(both[1])


def test_a_deadline_that_the_fastest_member_just_meets() -> None:
    """One step of 3 s; without the fastest, who never trains, two of them."""
    assert known("step=3", "deadline=3").deadline == 3.0
    with pytest.raises(ConfigError, match=r"pace\.deadline = 2\.9 s can never be met: the fastest client trains for 3"):
        paced("step=3", "deadline=2.9")
    with pytest.raises(ConfigError, match="trains for 6 s"):
        paced("step=3", "deadline=3", unseen=frozenset({2}))
