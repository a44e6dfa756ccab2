"""The search of a tuning: which trials there are, and what they draw."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from accord.settings import Search, Setting
from accord.study.plan import Comparison, Tuning
from accord.study.space import draw
from accord.study.trials import Trial, plan_trials


def trials(algorithms: list[str], count: int, *sets: str) -> list[Trial]:
    return plan_trials(Comparison(None, sets, algorithms, [0], Tuning(count)), range(count), {})


def test_what_is_given_is_not_searched() -> None:
    found = trials(["fedprox"], 3, "local.lr=0.3", "local.momentum=0.9")
    assert all(trial.config.local.lr == 0.3 for trial in found)
    assert [set(trial.settings) for trial in found] == [set(), {"algorithm.mu"}, {"algorithm.mu"}]


def test_a_space_of_four_points_gets_four_trials() -> None:
    found = trials(["ditto"], 9, "local.lr=0.1")  # lam is one of four, the default among them
    assert sorted(trial.config.algorithm.options["lam"] for trial in found) == [0.05, 0.1, 1.0, 2.0]
    assert len(trials(["fedavg"], 9, "local.lr=0.1")) == 1, "nothing to search: the settings as they are"


def test_settings_that_do_not_fit_together_are_drawn_again() -> None:
    found = trials(["fedavg"], 6, "local.min_lr=0.05")  # at most local.lr
    assert len(found) == 6
    assert all(trial.config.local.lr >= 0.05 for trial in found)


def test_draws_depend_on_setting_and_trial_alone_and_rates_are_common() -> None:
    few, many = trials(["fedprox"], 2), trials(["fedavg", "fedprox"], 5)
    assert few[1].settings == many[6].settings
    assert trials(["fedprox"], 2, "local.lr=0.1")[1].settings["algorithm.mu"] == few[1].settings["algorithm.mu"]
    rates = [trial.settings.get("local.lr") for trial in many]
    assert rates[:5] == rates[5:], "no method has better luck with the learning rate"
    assert len(set(rates)) == 5
    weights = [trials([name], 2)[1].settings["algorithm.mu"] for name in ("fedprox", "fedmtl")]
    assert weights[0] != weights[1], "own settings are each method's own, also under one name and range"


def test_draws_lie_in_their_ranges_and_follow_them() -> None:
    rng = np.random.default_rng(0)
    log = Setting("a", float, 1.0, search=Search(1e-3, 10.0, log=True))
    drawn = np.array([draw(log, rng) for _ in range(2000)], dtype=float)
    assert drawn.min() >= 1e-3
    assert drawn.max() <= 10
    # a quarter of them in each of the four decades; 2000 draws: deviation 19
    counts = np.histogram(np.log10(drawn), bins=[-3, -2, -1, 0, 1])[0]
    assert all(abs(count - 500) < 80 for count in counts)
    flat = np.array([draw(Setting("a", float, 1.0, search=Search(0.0, 1.0)), rng) for _ in range(2000)], dtype=float)
    assert abs(flat.mean() - 0.5) < 0.03
    whole = {draw(Setting("a", int, 1, search=Search(1, 4)), rng) for _ in range(200)}
    assert whole == {1, 2, 3, 4}
    words = {draw(Setting("a", str, "x", search=Search(choices=("x", "y"))), rng) for _ in range(50)}
    assert words == {"x", "y"}


def test_studies_need_no_terminal_packages() -> None:
    blocked = "import sys; sys.modules['typer'] = sys.modules['rich'] = None; import accord.study.comparison"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", blocked], env=environment, check=True)
