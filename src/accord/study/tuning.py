"""`accord.tune`: a search for each algorithm's settings, all with the same number of trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from accord.config import RunConfig
from accord.data.federated import Dataset, FederatedData
from accord.errors import DataError, RunError
from accord.study.choice import best_of
from accord.study.inputs import Inputs
from accord.study.optimiser import BLOCK, need_optuna
from accord.study.plan import Comparison, Tuning
from accord.study.progress import Progress
from accord.study.results import TuningResult
from accord.study.trials import Trial, plan_trials
from accord.study.work import Observers, Where, carry_out_all, check_where
from accord.trackers import observers_for


def tune(
    algorithms: Sequence[str],
    *,
    trials: int,
    rounds: int | None = None,
    config: Path | str | RunConfig | None = None,
    sets: Sequence[str] = (),
    seed: int = 0,
    sweep: Mapping[str, Iterable[Any]] | Iterable[str] = (),
    jobs: int | str = 1,
    on: Where = "here",
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    observers: Observers = observers_for,
    progress: Progress | None = None,
) -> TuningResult:
    """Find the settings each algorithm does best with on validation data, and write tuning.json and tuning.md.

    The first trial has the settings as they are, the next nine are drawn at random, the others are proposed by Optuna;
    from the sixth on, one that does worse than most did by then is pruned. The trials lie where `accord.compare` with
    `tune=trials` and `tune_rounds=rounds` looks for them: it takes them as they are. Called again after a stop, it goes
    on to the same trials. The arguments are those of `accord.compare`.

    >>> tuned = accord.tune(["fedprox"], trials=2, rounds=1, sets=["rounds=1", "data.limit=200"])
    >>> sorted(tuned.chosen)
    ['fedprox']
    """
    tuning = Tuning(trials, rounds)
    comparison = Comparison(config, sets, algorithms, (seed,), tuning, Inputs(data, model), sweep)
    check_where(on, (comparison.config(variant, comparison.seeds[0]) for variant in comparison.variants))
    result = search(comparison, observers, progress or Progress(), jobs, on)
    result.write()
    return result


def search(
    comparison: Comparison, observers: Observers, progress: Progress, jobs: int | str = 1, on: Where = "here"
) -> TuningResult:
    """Carry out what is left of a comparison's trials, block by block, and choose."""
    assert comparison.tuning is not None
    data, count = comparison.inputs.data, comparison.tuning.trials
    if isinstance(data, FederatedData) and not len(data.validation.order):
        raise DataError(
            "no client has validation data to be tuned by: deal the data with some, such as "
            "accord.federate(dataset, validation=0.1), or give the data set itself"
        )
    if count > BLOCK:
        need_optuna(count)
    trials: dict[str, list[Trial]] = {}
    for first in range(0, count, BLOCK):
        block = plan_trials(comparison, range(first, min(first + BLOCK, count)), trials)
        done = sum(map(len, trials.values()))
        total = done + len(block) + max(count - first - BLOCK, 0) * len(comparison.variants)
        if not first:
            comparison.claim()
            progress.tuning(describe(comparison, block, total))
        lost = carry_out_all(block, comparison.inputs, observers, jobs, progress, done, total, on)
        for place, reason in lost.items():
            raise RunError(f"{block[place].label}: {reason}; ask for the same again to go on")
        for trial in block:
            trials.setdefault(trial.variant, []).append(trial)
            if trial.failure is not None:
                progress.trial_failed(trial, trial.failure)
    result = read_trials(comparison, trials)
    for algorithm, choice in result.choices.items():
        progress.chosen(algorithm, choice)
    return result


def describe(comparison: Comparison, trials: Sequence[Trial], count: int) -> str:
    """What the trials are, in a sentence."""
    config = trials[0].config
    if comparison.inputs.dealt:
        share = "as the data came with it"
    else:
        share = f"{100 * config.partition.validation:g} % of each client's training data"
        if not comparison.config(comparison.variants[0], config.seed).partition.validation:
            share += ", held out in the trials only, as partition.validation is 0"
    return (
        f"tuning: {count} trials, {config.rounds} rounds each, seed {config.seed}, judged on validation "
        f"data ({share}); the test data is not used"
    )


def read_trials(comparison: Comparison, trials: Mapping[str, Sequence[Trial]]) -> TuningResult:
    """What the trials of all variants came to, once they are over."""
    everyone = [trial for group in trials.values() for trial in group]
    config = everyone[0].config
    return TuningResult(
        comparison.folder,
        describe(comparison, everyone, len(everyone)),
        config.rounds,
        config.seed,
        None if comparison.inputs.dealt else config.partition.validation,
        {algorithm: best_of(group) for algorithm, group in trials.items()},
    )
