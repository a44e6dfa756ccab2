"""The trials of a search: which there are, and what one that fails or is pruned leaves behind.

Trial 0 has the settings as they are, the next ones what was drawn, later ones what Optuna proposed. They come in blocks
of five; a trial is proposed and pruned by what the blocks before its own came to. A trial is a run with the first seed
in which validation data takes the place of the test data (evaluate.split), so no choice is made from a test.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from accord.config import RunConfig, config_hash, to_toml
from accord.config.toml import literal
from accord.core.methods import is_personal
from accord.engine.files import write_atomic
from accord.errors import AccordError, ConfigError, DivergedError
from accord.observe import Observer
from accord.study.entry import Entry, Run
from accord.study.optimiser import BLOCK, DRAWN, History, Past, PrunedError, Pruning, history_of, last_fifth, propose
from accord.study.plan import Comparison
from accord.study.space import draw_settings, search_space
from accord.study.variants import Variant

HELD_OUT = 0.1  # of a client's training data, where the comparison itself has no validation data
ATTEMPTS = 50  # draws of one trial before its space is taken to be used up
FAILED = "failed.txt"
PRUNED = "pruned.txt"


@dataclass(frozen=True)
class Trial(Entry):
    """One run of the search."""

    number: int
    settings: Mapping[str, object]  # what was drawn, by key; nothing: the settings as they are
    earlier: Sequence[History] = ()  # of the finished trials of earlier blocks, by which it may be pruned

    @property
    def label(self) -> str:
        return f"{self.variant}, trial {self.number} ({', '.join(self.texts) or 'as it is'})"

    @property
    def texts(self) -> list[str]:
        """The settings as `--set` wants them."""
        return [f"{key}={literal(value)}" for key, value in self.settings.items()]

    @property
    def finished(self) -> bool:
        """Also when it failed or was pruned: it would again."""
        return super().finished or self.failure is not None or self.pruned is not None

    @property
    def failure(self) -> str | None:
        """Why it has no score."""
        return self._said(FAILED)

    @property
    def pruned(self) -> str | None:
        """After which round it was stopped, and why."""
        return self._said(PRUNED)

    def _said(self, name: str) -> str | None:
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def watchers(self) -> list[Observer]:
        """Who may stop it."""
        enough = len(self.earlier) >= BLOCK
        return [Pruning(self.earlier, is_personal(self.config.algorithm.name))] if enough else []

    def noted(self, error: AccordError) -> bool:
        """A failure that says something about the settings that were drawn makes the trial the worst."""
        if isinstance(error, PrunedError):
            write_atomic(self.folder / PRUNED, str(error))
            return True
        refused = isinstance(error, ConfigError) and self.number > 0  # in trial 0 the comparison itself is wrong
        if not refused and not isinstance(error, DivergedError):
            return False
        write_atomic(self.folder / "config.toml", to_toml(self.config))
        write_atomic(self.folder / FAILED, str(error))
        return True

    def tidy(self) -> None:
        """Nobody will go on from its checkpoints."""
        shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)


def plan_trials(comparison: Comparison, numbers: Iterable[int], known: Mapping[str, Sequence[Trial]]) -> list[Trial]:
    """The trials of these numbers for every variant; a space with fewer points than trials gets one for each point.

    `known` has the trials of earlier blocks, all of them over.
    """
    trials: list[Trial] = []
    for variant in comparison.variants:
        past = known.get(variant.label, ())
        planner = _Planner(comparison, variant, past)
        group: list[Trial] = []
        for number in numbers:
            trial = planner.trial(number, [*past, *group])
            group += [trial] if trial is not None else []
        trials += group
    comparison.check_folders(trials)
    return trials


class _Planner:
    """Finds the trials of one variant."""

    def __init__(self, comparison: Comparison, variant: Variant, past: Sequence[Trial]) -> None:
        self.comparison, self.variant = comparison, variant
        self.space = search_space(comparison, variant)
        self.past = [self._past(trial) for trial in past]
        self.earlier = tuple(trial.history for trial in self.past if trial.score is not None and trial.history)

    def trial(self, number: int, before: Sequence[Trial]) -> Trial | None:
        """One that is not among those before it; None if there is none left."""
        tried = {config_hash(old.config) for old in before}
        for attempt in range(ATTEMPTS if number else 1):
            drawn = self._settings(number, attempt)
            texts = [f"{key}={literal(value)}" for key, value in drawn.items()]
            try:
                config = _as_trial(self.comparison, self.variant, number, texts)
            except ConfigError:
                if not number:
                    raise
                continue  # fine alone, wrong together, such as a rate below local.min_lr
            if config_hash(config) not in tried:
                return Trial(config, self.variant.label, number, drawn, self.earlier)
        return None

    def _settings(self, number: int, attempt: int) -> dict[str, object]:
        if not number or not self.space:
            return {}
        if number < DRAWN:
            return draw_settings(self.space, self.variant.algorithm, number, attempt)
        return propose(self.space, self.past, self.variant.algorithm, number, attempt)

    def _past(self, trial: Trial) -> Past:
        settings = {key: _value(trial.config, key) for key in self.space}
        personal = is_personal(trial.config.algorithm.name)
        history = {} if trial.failure is not None else history_of(trial.folder, trial.config, personal)
        last = [value for round, value in history.items() if round > last_fifth(trial.config.rounds)]
        return Past(settings, statistics.fmean(last) if last and trial.pruned is None else None, history)


def _value(config: RunConfig, key: str) -> object:
    """The value of a searched setting."""
    section, _, name = key.partition(".")
    place = getattr(config, section)
    return getattr(place, "options", {}).get(name, getattr(place, name, None))


def _as_trial(comparison: Comparison, variant: Variant, number: int, texts: Sequence[str]) -> RunConfig:
    config = comparison.config(variant, comparison.seeds[0], texts)
    assert comparison.tuning is not None
    options = dict(config.evaluate.options)
    options |= dict.fromkeys(("clients", "local_on_global", "drift", "map"), False) | {"unseen_epochs": 0}
    options["personal"] = is_personal(variant.algorithm) or options["personal"]
    cheap = replace(config.evaluate, split="validation", options=options)
    return replace(
        config,
        out=str(comparison.folder / "tune"),
        name=Run(variant.label, number).folder_name,
        rounds=comparison.tuning.rounds or config.rounds,
        partition=replace(config.partition, validation=config.partition.validation or HELD_OUT),
        evaluate=cheap,
        checkpoint=replace(config.checkpoint, keep=1, personal_mb=0),
    )
