"""The trials of a search: which there are, and what one that fails leaves behind.

Trial 0 has the settings as they are, the others what was drawn. A trial is a run with the first seed in which
validation data takes the place of the test data (evaluate.split), so no choice is made from a test.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from accord.config import RunConfig, to_toml
from accord.config.toml import literal
from accord.core.methods import is_personal
from accord.engine.files import write_atomic
from accord.errors import AccordError, ConfigError, DivergedError
from accord.study.entry import Entry
from accord.study.plan import Comparison
from accord.study.space import draw_settings, search_space

HELD_OUT = 0.1  # of a client's training data, where the comparison itself has no validation data
ATTEMPTS = 50  # draws of one trial before its space is taken to be used up
FAILED = "failed.txt"


@dataclass(frozen=True)
class Trial(Entry):
    """One run of the search."""

    number: int
    settings: Mapping[str, object]  # what was drawn, by key; nothing: the settings as they are

    @property
    def label(self) -> str:
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

    def noted(self, error: AccordError) -> bool:
        """A failure that says something about the settings that were drawn makes the trial the worst."""
        refused = isinstance(error, ConfigError) and self.number > 0  # in trial 0 the comparison itself is wrong
        if not refused and not isinstance(error, DivergedError):
            return False
        write_atomic(self.folder / "config.toml", to_toml(self.config))
        write_atomic(self.folder / FAILED, str(error))
        return True

    def tidy(self) -> None:
        """Nobody will go on from its checkpoints."""
        shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)


def plan_trials(comparison: Comparison) -> list[Trial]:
    """All trials; a space with fewer points than trials gets one for each point."""
    assert comparison.tuning is not None
    trials: list[Trial] = []
    for algorithm in comparison.algorithms:
        group: list[Trial] = []
        for number in range(comparison.tuning.trials):
            trial = _new(comparison, algorithm, number, group)
            group += [trial] if trial is not None else []
        trials += group
    comparison.check_folders(trials)
    return trials


def _new(comparison: Comparison, algorithm: str, number: int, before: Sequence[Trial]) -> Trial | None:
    space = search_space(comparison, algorithm)
    for attempt in range(ATTEMPTS if number else 1):
        drawn = draw_settings(space, algorithm, number, attempt) if number else {}
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
        checkpoint=replace(config.checkpoint, keep=1, personal_mb=0),
    )
