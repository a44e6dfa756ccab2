"""A small random search for each algorithm of a comparison, all with the same number of trials.

Trial 0 has the settings as they are; the others draw `local.lr` and the algorithm's own settings from the ranges
written beside them (`accord.settings.Search`). What is given with --set is not searched. Draws are addressed by
setting and trial: more trials, or another setting, leave the others as they were, and all algorithms try the same
learning rates.

A trial is a run with the first seed in which validation data takes the place of the test data (evaluate.split), so
no choice is made from a test. It is judged by the mean accuracy over the last fifth of its rounds; a personal method,
or one without a global model, by the personal accuracy at the end. A trial that diverges, or draws what its method
refuses, is worse than all others. The best is used for the runs, the earlier one of two equals.
"""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from accord.cli.planning import Comparison, Entry
from accord.config import RunConfig, to_toml
from accord.config.toml import literal
from accord.config.tree import LocalConfig
from accord.core.keys import Key
from accord.engine.files import write_atomic
from accord.errors import ConfigError, DivergedError, RunError
from accord.report.runs import read_metrics, read_summary
from accord.settings import Setting, settings_of

KEY = Key(0)  # the same draws in every comparison
HELD_OUT = 0.1  # of a client's training data, where the comparison itself has no validation data
LAST = 0.2  # share of the rounds whose evaluations judge a trial
ATTEMPTS = 50  # draws of one trial before its space is taken to be used up
FAILED = "failed.txt"


@dataclass(frozen=True)
class Trial(Entry):
    """One run of the search."""

    number: int
    settings: Mapping[str, object]  # what was drawn, by key; nothing: the settings as they are

    @property
    def label(self) -> str:
        """What is printed about it."""
        return f"{self.config.algorithm.name}, trial {self.number} ({', '.join(self.texts) or 'as it is'})"

    @property
    def texts(self) -> list[str]:
        """The settings as `--set` wants them."""
        return [f"{key}={literal(value)}" for key, value in self.settings.items()]

    @property
    def finished(self) -> bool:
        """Also when it failed: it would again."""
        return super().finished or self.failure is not None

    @property
    def failure(self) -> str | None:
        """Why it has no score."""
        path = self.folder / FAILED
        return path.read_text(encoding="utf-8") if path.is_file() else None


@dataclass(frozen=True)
class Choice:
    """What the search came to for one algorithm."""

    trial: int
    settings: Mapping[str, object]
    score: float | None  # None: every trial failed, and the settings stay as they are
    judged_by: str
    tried: Sequence[Mapping[str, Any]]
    texts: Sequence[str]

    @property
    def words(self) -> str:
        """What is printed about it."""
        if self.score is None:
            return f"all {len(self.tried)} trials failed; the settings stay as they are"
        settings = ", ".join(self.texts) or "the settings as they are"
        return f"trial {self.trial} of {len(self.tried)}: {settings}; validation {self.judged_by} {self.score:.4f}"


def plan_study(comparison: Comparison) -> Study:
    """All trials; a space with fewer points than trials gets one for each point."""
    assert comparison.tuning is not None
    trials: list[Trial] = []
    for algorithm in comparison.algorithms:
        own: list[Trial] = []
        for number in range(comparison.tuning.trials):
            trial = _new(comparison, algorithm, number, own)
            own += [trial] if trial is not None else []
        trials += own
    for trial in trials:
        trial.check_folder()
    return Study(comparison, trials)


def _new(comparison: Comparison, algorithm: str, number: int, before: Sequence[Trial]) -> Trial | None:
    space = search_space(comparison, algorithm)
    for attempt in range(ATTEMPTS if number else 1):
        drawn = {
            key: draw(setting, KEY.at(_stream(algorithm, key), number, attempt))
            for key, setting in (space.items() if number else ())
        }
        trial = Trial(RunConfig(), number, drawn)
        try:
            config = _as_trial(comparison, algorithm, number, trial.texts)
        except ConfigError:
            if not number:
                raise
            continue  # fine alone, wrong together, such as a rate below local.min_lr
        if all(replace(old.config, name="") != replace(config, name="") for old in before):
            return replace(trial, config=config)
    return None


def _stream(algorithm: str, key: str) -> str:
    """What all methods have (the learning rate) takes the same values for all, so that none has better luck with it."""
    return f"tune.{algorithm}.{key}" if key.startswith("algorithm.") else f"tune.{key}"


def _as_trial(comparison: Comparison, algorithm: str, number: int, texts: Sequence[str]) -> RunConfig:
    config = comparison.config(algorithm, comparison.seeds[0], texts)
    assert comparison.tuning is not None
    options = dict(config.evaluate.options)
    options |= dict.fromkeys(("clients", "local_on_global", "drift", "map"), False) | {"unseen_epochs": 0}
    options["personal"] = is_personal(algorithm) or options["personal"]
    cheap = replace(config.evaluate, split="validation", options=options)
    return replace(
        config,
        out=str(comparison.folder / "tune"),
        name=f"{algorithm}-{number}",
        rounds=comparison.tuning.rounds or config.rounds,
        partition=replace(config.partition, validation=config.partition.validation or HELD_OUT),
        evaluate=cheap,
        checkpoint=replace(config.checkpoint, keep=1),
    )


def search_space(comparison: Comparison, algorithm: str) -> dict[str, Setting]:
    """What is searched, by key."""
    everyone = {f"local.{name}": setting for name, setting in settings_of(LocalConfig).items()}
    own = {f"algorithm.{name}": setting for name, setting in comparison.settings[algorithm].items()}
    return {
        key: setting
        for key, setting in {**everyone, **own}.items()
        if setting.search is not None and key not in comparison.fixed
    }


def draw(setting: Setting, rng: np.random.Generator) -> object:
    """One value, numbers from an interval with three digits."""
    search = setting.search
    assert search is not None
    if search.choices:
        return search.choices[int(rng.integers(len(search.choices)))]
    assert search.low is not None
    assert search.high is not None
    if search.log:
        number = math.exp(rng.uniform(math.log(search.low), math.log(search.high)))
    else:
        number = rng.uniform(search.low, search.high)
    return round(number) if setting.type is int else float(f"{number:.3g}")


def is_personal(algorithm: str) -> bool:
    """Whether an algorithm is about the clients' own models."""
    from accord.algorithms import PERSONAL
    from accord.algorithms.local import local

    return algorithm in [factory.__name__ for factory in (*PERSONAL, local)]


def carry_out_trial(trial: Trial, work: Callable[[], object]) -> None:
    """Do the `work` of a trial; a failure that says something about its settings is noted instead of raised."""
    try:
        work()
    except (ConfigError, DivergedError) as error:
        if isinstance(error, ConfigError) and not trial.number:
            raise  # nothing was drawn: the comparison itself is wrong
        write_atomic(trial.folder / "config.toml", to_toml(trial.config))
        write_atomic(trial.folder / FAILED, str(error))
    shutil.rmtree(trial.folder / "checkpoint", ignore_errors=True)  # nobody will go on from it


def score(trial: Trial) -> tuple[float, str]:
    """How good a trial was, and in what."""
    summary = read_summary(trial.folder)
    first = math.floor((1 - LAST) * trial.config.rounds)  # the last round is always evaluated
    records = [record for record in read_metrics(trial.folder) if record["round"] > first]
    accuracies = [record["accuracy"] for record in records if "accuracy" in record]
    if accuracies and not is_personal(trial.config.algorithm.name):
        return statistics.fmean(accuracies), "accuracy"
    if summary.get("personal_accuracy"):
        return float(summary["personal_accuracy"]["mean"]), "personal accuracy"
    raise ConfigError(
        f"algorithm {trial.config.algorithm.name} has no global model to be tuned by: measure its personal accuracy "
        "with --set evaluate.personal=true"
    )


def _best(trials: Sequence[Trial]) -> Choice:
    best, highest, judged_by = trials[0], -math.inf, ""
    tried: list[dict[str, Any]] = []
    for trial in trials:
        record: dict[str, Any] = {"trial": trial.number, "settings": dict(trial.settings)}
        if trial.failure is not None:
            record |= {"score": None, "failed": trial.failure}
        else:
            record["score"], judged_by = score(trial)
            if record["score"] > highest:
                best, highest = trial, record["score"]
        tried.append(record)
    found = highest if math.isfinite(highest) else None
    return Choice(best.number, best.settings, found, judged_by, tried, best.texts)


@dataclass(frozen=True)
class Study:
    """All trials of a comparison, and what they came to."""

    comparison: Comparison
    trials: Sequence[Trial]

    @cached_property
    def choices(self) -> dict[str, Choice]:
        """The best trial of each algorithm, once all are finished."""
        groups: dict[str, list[Trial]] = {}
        for trial in self.trials:
            if not trial.finished:
                raise RunError(f"{trial.label} is not finished: run the same command again to go on")
            groups.setdefault(trial.config.algorithm.name, []).append(trial)
        return {algorithm: _best(group) for algorithm, group in groups.items()}

    @property
    def chosen(self) -> dict[str, Sequence[str]]:
        """The settings for the runs, as `--set` wants them."""
        return {algorithm: choice.texts for algorithm, choice in self.choices.items()}

    def describe(self) -> str:
        """What the trials are, in a sentence."""
        config = self.trials[0].config
        share = f"{100 * config.partition.validation:g} % of each client's training data"
        if not self.comparison.config(config.algorithm.name, config.seed).partition.validation:
            share += ", held out in the trials only, as partition.validation is 0"
        return (
            f"tuning: {len(self.trials)} trials, {config.rounds} rounds each, seed {config.seed}, judged on validation "
            f"data ({share}); the test data is not used"
        )

    def as_json(self) -> dict[str, Any]:
        """The search and what it came to, as plain values."""
        config = self.trials[0].config
        return {
            "rounds": config.rounds,
            "seed": config.seed,
            "validation": config.partition.validation,
            "algorithms": {
                algorithm: {
                    "trial": choice.trial,
                    "settings": dict(choice.settings),
                    "score": choice.score,
                    "judged_by": choice.judged_by,
                    "tried": list(choice.tried),
                }
                for algorithm, choice in self.choices.items()
            },
        }

    def markdown(self) -> str:
        """The chosen settings, as a table to stand below that of the runs."""
        lines = ["", f"Settings by {self.describe()}.", "", "| algorithm | chosen |", "|---|---|"]
        lines += [f"| {algorithm} | {choice.words} |" for algorithm, choice in self.choices.items()]
        return "\n".join(lines) + "\n"
