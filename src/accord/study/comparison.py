"""`accord.compare`: several algorithms, variants and settings over several seeds, tuned before where that is asked for.

A comparison that was stopped goes on where it was: finished runs are skipped, unfinished ones resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from accord.config import RunConfig
from accord.data.federated import Dataset, FederatedData
from accord.errors import ConfigError
from accord.report.runs import read_metrics, read_summary
from accord.study.inputs import Inputs
from accord.study.plan import Comparison, Tuning
from accord.study.progress import Progress
from accord.study.results import ComparisonResult
from accord.study.tuning import search
from accord.study.work import Observers, Where, carry_out_all, check_where
from accord.trackers import observers_for


def compare(
    algorithms: Sequence[str],
    *,
    config: Path | str | RunConfig | None = None,
    sets: Sequence[str] = (),
    seeds: Sequence[int] = (0, 1, 2),
    tune: int | None = None,
    tune_rounds: int | None = None,
    sweep: Mapping[str, Iterable[Any]] | Iterable[str] = (),
    jobs: int | str = 1,
    on: Where = "here",
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    observers: Observers = observers_for,
    progress: Progress | None = None,
) -> ComparisonResult:
    """Run every algorithm with every seed, and write compare.json, table.md and curves.png beside the runs.

    The same call again goes on after a stop; more algorithms or seeds join what is there.

    >>> result = accord.compare(["fedavg", "fedprox: mu=0.1"], seeds=[0, 1], sets=["rounds=1", "data.limit=200"])
    >>> [row.algorithm for row in result.rows]
    ['fedavg', 'fedprox: mu=0.1']
    >>> result.differences(baseline="fedavg").rows[0].seeds
    2

    Args:
        algorithms: their names, see `accord list algorithms`; a variant is a name with settings, "fedprox: mu=0.1".
        config: the settings common to all runs, a file or a configuration; None: the defaults.
        sets: changes of it, such as "rounds=50"; an algorithm's own, such as "algorithm.mu=0.1", go to those that
            have them. What is set here is not searched.
        seeds: whole numbers, each a run of every algorithm.
        tune: search the settings of each algorithm first, with this many trials on validation data.
        tune_rounds: rounds of a trial, if other than those of the runs.
        sweep: settings with the values they take in turn, {"partition.alpha": [0.1, 1]} or ["partition.alpha=0.1,1"];
            several make a grid. An algorithm's own, such as "algorithm.mu", go to those that have them.
        jobs: runs at a time, each in a process of its own; "auto": as many as there are cores, on a GPU a few. The
            numbers do not depend on it.
        on: "here", or "ray": every run is a task of a Ray cluster, whose machines share the runs' folder; jobs="auto"
            is then one run per GPU, or core, of the cluster.
        data: own data for all runs, as `accord.run` takes it; to be given again with a call that goes on.
        model: an own network for all runs; all begin with its weights.
        observers: makes the observers of one run from its configuration, in the run's process; they are closed after
            it. With several jobs on a GPU it has to be a function of a module.
        progress: is told which run is next, what failed and what was chosen.

    A run that fails (its training diverges, say) does not cost the others, and is in `failed` of the result.
    """
    if tune is None and tune_rounds is not None:
        raise ConfigError("tune_rounds goes with tune, the number of trials (--tune-rounds with --tune N)")
    tuning = Tuning(tune, tune_rounds) if tune is not None else None
    comparison = Comparison(config, sets, algorithms, seeds, tuning, Inputs(data, model), sweep)
    check_where(on, (comparison.config(variant, comparison.seeds[0]) for variant in comparison.variants))
    told = progress or Progress()
    tuned = search(comparison, observers, told, jobs, on) if tuning is not None else None
    entries = comparison.entries(tuned.chosen if tuned is not None else None)
    comparison.claim()
    lost = carry_out_all(entries, comparison.inputs, observers, jobs, told, on=on)
    failed = {entries[place].run: reason for place, reason in lost.items()}
    summaries = {entry.run: read_summary(entry.folder) for entry in entries if entry.finished}
    failed |= {run: summary["diverged"] for run, summary in summaries.items() if "diverged" in summary}
    result = ComparisonResult(
        comparison.folder,
        {run: summary for run, summary in summaries.items() if run not in failed},
        {entry.run: read_metrics(entry.folder) for entry in entries if entry.run in summaries.keys() - failed.keys()},
        failed,
        tuned,
        comparison.digest,
    )
    everything = result.joined()
    everything.write()
    try:
        if everything.rows:
            everything.draw(result.folder / "curves.png")
    except ConfigError as missing:
        told.not_drawn(str(missing))
    return result
