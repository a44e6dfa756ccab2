"""What Optuna says of a search: which settings to try next, and whether a trial is worth going on with.

The trials' own folders are the truth. Whenever Optuna is asked, it is told the trials of earlier blocks as their files
have them, in a study that lives in memory and has a seed of its own for every trial. So there is no database beside the
runs, a search that was stopped goes on to the same trials, and it does not matter how many run at a time: a trial knows
of earlier blocks and of nothing in its own.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.core.keys import Key
from accord.errors import ConfigError, RunError
from accord.observe import Observer
from accord.problems import PROBLEMS, Problem, headlines
from accord.report.runs import read_metrics
from accord.settings import Setting
from accord.study.space import as_written

if TYPE_CHECKING:
    from accord.config import RunConfig

BLOCK = 5  # trials of an algorithm that are planned together; those of the first block are never pruned
DRAWN = 10  # trials that are drawn at random before Optuna proposes: its own default
WARMUP = 1 / 3  # of the rounds, before a trial may be pruned: methods start at different speeds
LAST = 0.2  # share of the rounds whose evaluations judge a trial
KEY = Key(0)  # the same seeds in every search

History = Mapping[int, float]  # what a trial is judged by, by round


class PrunedError(RunError):
    """A trial was stopped, since it does worse than most did by then."""


@dataclass(frozen=True)
class Past:
    """A trial that is over."""

    settings: Mapping[str, object]  # every searched one
    score: float | None  # None: it failed, or was pruned
    history: History


def need_optuna(trials: int) -> Any:
    """The package; a ConfigError says how to get it."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ConfigError(
            f"a search of {trials} trials needs Optuna, which proposes and prunes them: pip install 'accord-fl[tune]', "
            f"or ask for at most {BLOCK} trials, which are drawn at random"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would tell of every study in memory
    return optuna


def propose(
    space: Mapping[str, Setting], past: Iterable[Past], algorithm: str, number: int, attempt: int
) -> dict[str, object]:
    """The settings of a trial by the tree-structured Parzen estimator; a further `attempt` is another draw from it."""
    optuna = need_optuna(number + 1)
    distributions = {key: _distribution(optuna, setting) for key, setting in space.items()}
    seed = int(KEY.at(f"tune.propose.{algorithm}", number, attempt).integers(2**32))
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for trial in past:
        if all(_lies_in(setting, trial.settings[key]) for key, setting in space.items()):  # a default may not
            study.add_trial(_told(optuna, trial, distributions))
    params = study.ask(distributions).params
    return {
        key: params[key] if setting.search is not None and setting.search.choices else as_written(setting, params[key])
        for key, setting in space.items()
    }


class Pruning(Observer):
    """Ends a trial that does worse than the median of those before it did by then (`optuna.pruners.MedianPruner`)."""

    def __init__(self, earlier: Sequence[History], personal: bool) -> None:
        self._earlier, self._personal = earlier, personal
        self._optuna = need_optuna(len(earlier) + 1)
        self._trial: Any = None
        self._rounds = 0

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        """Tell Optuna what was before, also of this trial itself."""
        optuna, self._config = self._optuna, config
        pruner = optuna.pruners.MedianPruner(n_startup_trials=BLOCK, n_warmup_steps=math.ceil(WARMUP * total_rounds))
        study = optuna.create_study(direction="maximize", pruner=pruner)
        for history in self._earlier:
            study.add_trial(_told(optuna, Past({}, history[max(history)], history), {}))
        self._trial, self._rounds = study.ask(), total_rounds
        if first_round:
            for record in read_metrics(folder):
                if record["round"] <= first_round:
                    self._report(record["round"], record)

    def round_ended(self, round: int, record: Mapping[str, Any]) -> None:
        """Stop here, or go on."""
        value = self._report(round, record)
        if value is not None and round < self._rounds and self._trial.should_prune():
            raise PrunedError(
                f"pruned after round {round} of {self._rounds}: at best {abs(value):.4f}, and the median of the "
                f"{len(self._earlier)} trials before it was better by then"
            )

    def _report(self, round: int, record: Mapping[str, Any]) -> float | None:
        value = judged(record, problem_of(self._config, record), self._personal)
        if value is not None:
            self._trial.report(value, round)
        return value


def judged(record: Mapping[str, Any], problem: Problem, personal: bool) -> float | None:
    """What a round of a trial is judged by, the larger the better: the problem's leading number (an error's negative),
    of the clients' own models for methods that are about them."""
    value = None if personal else record.get(problem.headline)
    if value is None and isinstance(record.get("personal"), Mapping):
        value = record["personal"].get("mean")
    if value is None or not math.isfinite(value):
        return None
    return problem.worth(float(value))


def last_fifth(rounds: int) -> int:
    """The round after which evaluations judge a trial; the last one always has one."""
    return math.floor((1 - LAST) * rounds)


def problem_of(config: RunConfig, record: Mapping[str, Any]) -> Problem:
    """What a trial learns: as configured or, where that is left to the data, what its records speak of."""
    if config.task != "auto":
        return PROBLEMS[config.task]
    return next((problem for name, problem in headlines().items() if name in record), PROBLEMS["classification"])


def history_of(folder: Path, config: RunConfig, personal: bool) -> dict[int, float]:
    """What the rounds of a trial came to."""
    records = read_metrics(folder)
    values = {record["round"]: judged(record, problem_of(config, record), personal) for record in records}
    return {round: value for round, value in values.items() if value is not None}


def _distribution(optuna: Any, setting: Setting) -> Any:
    search = setting.search
    assert search is not None
    if search.choices:
        return optuna.distributions.CategoricalDistribution(search.choices)
    assert search.low is not None
    assert search.high is not None
    if setting.type is int:
        return optuna.distributions.IntDistribution(int(search.low), int(search.high), log=search.log)
    return optuna.distributions.FloatDistribution(search.low, search.high, log=search.log)


def _lies_in(setting: Setting, value: Any) -> bool:
    search = setting.search
    assert search is not None
    if search.choices:
        return value in search.choices
    assert search.low is not None
    assert search.high is not None
    return bool(search.low <= value <= search.high)


def _told(optuna: Any, trial: Past, distributions: Mapping[str, Any]) -> Any:
    """One without a score counts as pruned: Optuna ranks those without any value last."""
    state = optuna.trial.TrialState
    over = {"state": state.PRUNED} if trial.score is None else {"state": state.COMPLETE, "value": trial.score}
    return optuna.trial.create_trial(
        params={key: trial.settings[key] for key in distributions},
        distributions=dict(distributions),
        intermediate_values=dict(trial.history),
        **over,
    )
