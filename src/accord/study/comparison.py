"""`accord.compare`: several algorithms over several seeds, tuned before where that is asked for.

A comparison that was stopped goes on where it was: finished runs are skipped, unfinished ones resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from accord.config import RunConfig
from accord.data.federated import Dataset, FederatedData
from accord.errors import CheckpointError, ConfigError, RunError
from accord.observe import observers_for
from accord.problems import leading
from accord.report.runs import read_metrics, read_summary
from accord.study.entry import Run
from accord.study.inputs import Inputs
from accord.study.plan import Comparison, Tuning
from accord.study.progress import Progress
from accord.study.results import ComparisonResult
from accord.study.tuning import search
from accord.study.work import Observers, carry_out


def compare(
    algorithms: Sequence[str],
    *,
    config: Path | str | RunConfig | None = None,
    sets: Sequence[str] = (),
    seeds: Sequence[int] = (0, 1, 2),
    tune: int | None = None,
    tune_rounds: int | None = None,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    observers: Observers = observers_for,
    progress: Progress | None = None,
) -> ComparisonResult:
    """Run every algorithm with every seed, and write compare.json, table.md and curves.png beside the runs.

    The same call again goes on after a stop; more algorithms or seeds join what is there.

    Args:
        algorithms: their names, see `accord list algorithms`.
        config: the settings common to all runs, a file or a configuration; None: the defaults.
        sets: changes of it, such as "rounds=50"; an algorithm's own, such as "algorithm.mu=0.1", go to those that
            have them. What is set here is not searched.
        seeds: whole numbers, each a run of every algorithm.
        tune: search the settings of each algorithm first, with this many trials on validation data.
        tune_rounds: rounds of a trial, if other than those of the runs.
        data: own data for all runs, as `accord.run` takes it; to be given again with a call that goes on.
        model: an own network for all runs; all begin with its weights.
        observers: makes the observers of one run from its configuration; they are closed after it.
        progress: is told which run is next, what failed and what was chosen.

    A run that fails (its training diverges, say) does not cost the others, and is in `failed` of the result.
    """
    if tune is None and tune_rounds is not None:
        raise ConfigError("tune_rounds goes with tune, the number of trials (--tune-rounds with --tune N)")
    tuning = Tuning(tune, tune_rounds) if tune is not None else None
    comparison = Comparison(config, sets, algorithms, seeds, tuning, Inputs(data, model))
    told = progress or Progress()
    tuned = search(comparison, observers, told) if tuning is not None else None
    entries = comparison.entries(tuned.chosen if tuned is not None else None)
    comparison.claim()
    failed: dict[Run, str] = {}
    for position, entry in enumerate(entries, start=1):
        told.started(entry, position, len(entries))
        try:
            carry_out(entry, comparison.inputs, observers)
        except (RunError, CheckpointError) as error:  # one that diverges must not cost the others
            failed[entry.run] = str(error)
            told.run_failed(entry, str(error))
    summaries = {entry.run: read_summary(entry.folder) for entry in entries if entry.finished}
    failed |= {run: summary["diverged"] for run, summary in summaries.items() if "diverged" in summary}
    result = ComparisonResult(
        comparison.folder,
        {run: summary for run, summary in summaries.items() if run not in failed},
        {entry.run: read_metrics(entry.folder) for entry in entries if entry.run in summaries.keys() - failed.keys()},
        failed,
        tuned,
    )
    result.write()
    try:
        if result.rows:
            result.plot(result.folder / "curves.png", leading(next(iter(result.summaries.values()))))
    except ConfigError as missing:
        told.not_drawn(str(missing))
    return result
