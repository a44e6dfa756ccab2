"""`accord.tune`: a small random search for each algorithm, all with the same number of trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from accord.config import RunConfig
from accord.data.federated import Dataset, FederatedData
from accord.errors import DataError, RunError
from accord.observe import observers_for
from accord.study.choice import best_of
from accord.study.inputs import Inputs
from accord.study.plan import Comparison, Tuning
from accord.study.progress import Progress
from accord.study.results import TuningResult
from accord.study.trials import Trial, plan_trials
from accord.study.work import Observers, carry_out


def tune(
    algorithms: Sequence[str],
    *,
    trials: int,
    rounds: int | None = None,
    config: Path | str | RunConfig | None = None,
    sets: Sequence[str] = (),
    seed: int = 0,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    observers: Observers = observers_for,
    progress: Progress | None = None,
) -> TuningResult:
    """Find the settings each algorithm does best with on validation data, and write tuning.json and tuning.md.

    The trials lie where `accord.compare` with `tune=trials` and `tune_rounds=rounds` looks for them: it takes them as
    they are. Called again after a stop, it goes on. The arguments are those of `accord.compare`.
    """
    tuning = Tuning(trials, rounds)
    comparison = Comparison(config, sets, algorithms, (seed,), tuning, Inputs(data, model))
    result = search(comparison, observers, progress or Progress())
    result.write()
    return result


def search(comparison: Comparison, observers: Observers, progress: Progress) -> TuningResult:
    """Carry out what is left of a comparison's trials, and choose."""
    data = comparison.inputs.data
    if isinstance(data, FederatedData) and not len(data.validation.order):
        raise DataError(
            "no client has validation data to be tuned by: deal the data with some, such as "
            "accord.federate(dataset, validation=0.1), or give the data set itself"
        )
    trials = plan_trials(comparison)
    comparison.claim()
    progress.tuning(describe(comparison, trials))
    for position, trial in enumerate(trials, start=1):
        progress.started(trial, position, len(trials))
        carry_out(trial, comparison.inputs, observers)
        if trial.failure is not None:
            progress.trial_failed(trial, trial.failure)
    result = read_trials(comparison, trials)
    for algorithm, choice in result.choices.items():
        progress.chosen(algorithm, choice)
    return result


def describe(comparison: Comparison, trials: Sequence[Trial]) -> str:
    """What the trials are, in a sentence."""
    config = trials[0].config
    if comparison.inputs.dealt:
        share = "as the data came with it"
    else:
        share = f"{100 * config.partition.validation:g} % of each client's training data"
        if not comparison.config(config.algorithm.name, config.seed).partition.validation:
            share += ", held out in the trials only, as partition.validation is 0"
    return (
        f"tuning: {len(trials)} trials, {config.rounds} rounds each, seed {config.seed}, judged on validation "
        f"data ({share}); the test data is not used"
    )


def read_trials(comparison: Comparison, trials: Sequence[Trial]) -> TuningResult:
    """What the trials came to, once all are finished."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if not trial.finished:
            raise RunError(f"{trial.label} is not finished: ask for the same again to go on")
        groups.setdefault(trial.config.algorithm.name, []).append(trial)
    config = trials[0].config
    return TuningResult(
        comparison.folder,
        describe(comparison, trials),
        config.rounds,
        config.seed,
        None if comparison.inputs.dealt else config.partition.validation,
        {algorithm: best_of(group) for algorithm, group in groups.items()},
    )
