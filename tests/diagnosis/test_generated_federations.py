"""Federations with known skews: what was put in is found, and nothing else. Thresholds were chosen on other seeds
(benchmarks/calibrate_diagnosis.py)."""

from __future__ import annotations

import numpy as np
import pytest

import accord
from support.skewed import FEDERATIONS, dealt, generated, relabelled, resized, swapped

SIZES = (10, 8, 20, 6)
CASES = [(name, seed, SIZES[seed % len(SIZES)]) for seed, name in enumerate(FEDERATIONS)]


def check(name: str, seed: int, clients: int) -> None:
    made = generated(name, seed, clients)
    diagnosis = accord.diagnose(data=made.data, quick=True)
    found = set(diagnosis.found)
    assert made.skews <= found, f"missed {made.skews - found}: {[one.sentence for one in diagnosis.findings]}"
    assert found <= made.skews | made.perhaps, f"no reason for {found - made.skews}: {diagnosis}"
    assert all(one.sentence.endswith((".", ")")) for one in diagnosis.findings)


@pytest.mark.parametrize(("name", "seed", "clients"), CASES, ids=[name for name, *_ in CASES])
def test_what_was_put_in_is_found_and_nothing_else(name: str, seed: int, clients: int) -> None:
    check(name, seed, clients)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [31, 32])
@pytest.mark.parametrize("name", FEDERATIONS)
def test_with_other_seeds_and_sizes(name: str, seed: int) -> None:
    check(name, seed, 12 if seed % 2 else 30)


@pytest.mark.parametrize(
    ("kind", "seed", "clients", "uneven"),
    [("digits", 40, 5, False), ("digits", 41, 50, True), ("digits", 42, 200, False), ("table", 43, 100, True)],
)
def test_chance_is_no_skew(kind: str, seed: int, clients: int, uneven: bool) -> None:
    """Whatever the sizes; tiny clients differ from the whole by a lot, and that is chance."""
    data = dealt(kind, seed, clients)
    diagnosis = accord.diagnose(data=resized(data, seed) if uneven else data, quick=True)
    assert set(diagnosis.found) <= ({"quantity"} if uneven else set())
    assert diagnosis.suggestion.enough
    assert diagnosis.suggestion.verdict.startswith("FedAvg, tuned, is enough.")
    if clients == 200:
        assert diagnosis["labels"].numbers["distance_by_chance"] > 0.4


def test_one_client_among_many_is_named() -> None:
    data = dealt("digits", 50, 12)
    odd = relabelled(data, lambda client, x, y: swapped(1, x, y) if client == 7 else y)
    concept = accord.diagnose(data=odd, quick=True)["concept"]
    assert concept.severity == "mild"
    assert concept.clients == ("client 7",)
    assert concept.sentence.startswith("Client 7 calls inputs by other labels")


def test_noise_in_labels_is_no_concept() -> None:
    """Every second client's labels are wrong in 3 of 10 cases: it disagrees with itself as well."""
    rng = np.random.default_rng(0)

    def wrong(client, x, y):
        chosen = np.flatnonzero(rng.random(len(y)) < (0.3 if client % 2 else 0.0))
        y = y.clone()
        y[chosen] = y[chosen].add(1 + int(rng.integers(0, 9))) % 10
        return y

    diagnosis = accord.diagnose(data=relabelled(dealt("digits", 51, 10), wrong), quick=True)
    assert not diagnosis["concept"].found, diagnosis["concept"].sentence


def test_the_same_seed_says_the_same() -> None:
    data = generated("labels and rotation", 60, 6).data
    first, second = (accord.diagnose(data=data, quick=True).as_record() for _ in range(2))
    assert first == second
    other = accord.diagnose(data=data, quick=True, seed=1).as_record()
    assert [one["severity"] for one in other["findings"]] == [one["severity"] for one in first["findings"]]
    assert other != first
