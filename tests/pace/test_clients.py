"""How clients differ and when they are there: draws, and files with lines of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accord.core.keys import Key
from accord.errors import ConfigError, DataError
from accord.pace import DISTRIBUTIONS, PRESENCES
from accord.pace.pace import drawn
from accord.pace.presence import Terms
from accord.pace.traces import read_devices, read_intervals

KEY = Key(11)
NAMES = ["Aix", "Lyon", "Nice"]
MANY = 20_000


@pytest.mark.parametrize(
    ("name", "spread", "least", "median", "ninth"),  # the smallest value, the median and the ninth decile, by hand
    [
        ("constant", 0.7, 1.0, 1.0, 1.0),
        ("uniform", 0.5, 1.0, 1.25, 1.45),
        ("lognormal", 0.5, 0.0, 1.0, 1.898),  # exp(0.5 * 1.2816)
        ("halfnormal", 2.0, 1.0, 2.349, 4.290),  # 1 + 2 * 0.6745, 1 + 2 * 1.6449
        ("pareto", 0.5, 1.0, 1.414, 3.162),  # 2^0.5, 10^0.5
    ],
)
def test_factors(name: str, spread: float, least: float, median: float, ninth: float) -> None:
    found = drawn(KEY, "speed", DISTRIBUTIONS[name], MANY, spread)
    assert found.min() >= least
    assert np.median(found) == pytest.approx(median, rel=0.03)
    assert np.quantile(found, 0.9) == pytest.approx(ninth, rel=0.03)
    assert np.array_equal(found[:7], drawn(KEY, "speed", DISTRIBUTIONS[name], 7, spread)), "whoever else there is"
    if name != "constant":
        assert not np.array_equal(found, drawn(Key(12), "speed", DISTRIBUTIONS[name], MANY, spread))
        assert not np.array_equal(found, drawn(KEY, "network", DISTRIBUTIONS[name], MANY, spread))


def test_by_chance_a_share_of_the_rounds() -> None:
    chance = PRESENCES["chance"](Terms(KEY, 200, 0.3, 1.0, None))
    masks = np.stack([chance(round, 0.0) for round in range(100)])
    assert masks.mean() == pytest.approx(0.3, abs=0.02)
    assert np.array_equal(masks[5], chance(5, 99.0))
    assert masks.any(0).all()


def test_by_the_hour_a_share_of_the_day() -> None:
    daily = PRESENCES["daily"](Terms(KEY, 400, 0.25, 24.0, None))
    hours = np.stack([daily(0, hour) for hour in np.arange(0, 24, 0.5)])
    assert hours.sum(0).tolist() == [12] * 400, "six hours each"
    assert hours.mean(1) == pytest.approx(0.25, abs=0.08), "not all at the same time"
    assert np.array_equal(daily(0, 3.0), daily(9, 27.0))
    starts = (hours & ~np.roll(hours, 1, axis=0)).sum(0)
    assert starts.tolist() == [1] * 400, "in one piece"


def test_by_a_file(tmp_path: Path) -> None:
    path = tmp_path / "there.csv"
    path.write_text("client,from,until\nLyon,0,10\nNice,5,6.5\nLyon,20,30\n")
    trace = PRESENCES["trace"](Terms(KEY, 3, 1.0, 100.0, read_intervals(str(path), NAMES)))
    there = {now: [NAMES[k] for k in np.flatnonzero(trace(0, now))] for now in (0.0, 5.0, 6.5, 10.0, 25.0, 105.0)}
    assert there == {
        0.0: ["Lyon"],
        5.0: ["Lyon", "Nice"],
        6.5: ["Lyon"],
        10.0: [],
        25.0: ["Lyon"],
        105.0: ["Lyon", "Nice"],
    }
    with pytest.raises(ConfigError, match=r"needs pace\.intervals"):
        PRESENCES["trace"](Terms(KEY, 3, 1.0, 100.0, None))


def test_devices_as_measured(tmp_path: Path) -> None:
    path = tmp_path / "devices.csv"
    path.write_text(
        "\ufeffmbit,client,seconds_per_step,phone\n8,Nice,0.25,X\n1.5,Aix,2,Y\n4,Lyon,1e-3,\n", encoding="utf-8"
    )
    found = read_devices(str(path), NAMES)
    assert found.seconds_per_step is not None
    assert found.mbit is not None
    assert found.seconds_per_step.tolist() == [2.0, 0.001, 0.25]
    assert found.mbit.tolist() == [1.5, 4.0, 8.0]
    assert found.latency is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column 'client'; it must have client, seconds_per_step, mbit, latency"),
        ("client,phone\nAix,X\n", "says nothing of its clients"),
        ("client,mbit\nAix,1\nOslo,1\n", "line 3: there is no client 'Oslo'; there are 'Aix', 'Lyon', 'Nice'"),
        ("client,mbit\nAix,1\nAix,1\n", "line 3: a second line of the client 'Aix'"),
        ("client,mbit\nAix,1\n", "has no line of 2 of the 3 clients ('Lyon', 'Nice')"),
        ("client,mbit\nAix,fast\n", "line 2: mbit = 'fast' must be a number, above 0"),
        ("client,mbit\nAix,0\n", "line 2: mbit = '0' must be a number, above 0"),
        ("client,mbit\nAix\n", "line 2: mbit = None must be a number, above 0"),
        ("client,latency\nAix,-1\n", "line 2: latency = '-1' must be a number, 0 or more"),
        ("client,latency\nAix,inf\n", "must be a number, 0 or more"),
        ('client,mbit\nAix,"1\n', "is not a CSV file"),
    ],
)
def test_devices_that_cannot_be_read(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "devices.csv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_devices(str(path), NAMES)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client,from\nAix,1\n", "has no column 'until'; it must have client, from, until"),
        ("client,from,until\n", "has no lines, so nobody would ever be there"),
        ("client,from,until\nAix,3,3\n", "line 2: until = 3 must come after from = 3"),
    ],
)
def test_intervals_that_cannot_be_read(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "there.csv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_intervals(str(path), NAMES)
    assert said in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the trace"):
        read_devices(str(tmp_path / "nowhere.csv"), NAMES)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        read_devices(str(tmp_path / "bytes.csv"), NAMES)
