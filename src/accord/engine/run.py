"""A whole run, top to bottom: build, rounds, logs, checkpoints, summary."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from accord.config import RunConfig, config_hash
from accord.core.types import State
from accord.data.federated import Dataset, FederatedData
from accord.engine import identity
from accord.engine.checkpoint import Checkpoints, Snapshot, to_device
from accord.engine.ending import finished, sealed, write_summary
from accord.engine.evaluation import evaluator_of
from accord.engine.federation import Federation
from accord.engine.files import only_here
from accord.engine.folder import new_folder, read_config
from accord.engine.hosting import Hosting, Simulation
from accord.engine.logs import RunLogs, versions
from accord.engine.loop import Loop
from accord.engine.missing import account, named
from accord.engine.model_folder import read_model, write_model
from accord.engine.personal import OwnModels
from accord.engine.sites import read_sites, write_division, write_sites
from accord.engine.store import Remembered
from accord.errors import DataError, DivergedError
from accord.executors.gpu.precision import numerics
from accord.figures import figure_of, judged_value
from accord.frames import frame_of
from accord.measures import Evaluator, Function, Measure
from accord.measures.sites import Sites
from accord.observe import Audience, Glance, Observer
from accord.pace.clock import without_clock
from accord.wire.records import shown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Record = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: the trained module, the metrics per round, the summary, the folder.

    `model` is all of the global model's prediction, of inputs as the network takes them, and None for methods without
    one. `accord.load(folder)` gives one that takes raw inputs, and the clients' own models.
    """

    model: nn.Module | None
    metrics: list[Record]
    summary: Record
    folder: Path

    def sites(self) -> list[Record]:
        """How the final model does at each site: samples, classes, the global model, the site's own.

        Empty where nothing was measured at the clients (`evaluate.clients`, `evaluate.personal`).

        >>> for row in outcome.sites():                                           # doctest: +SKIP
        ...     print(row["site"], row["samples"], row["accuracy"])
        """
        found = read_sites(self.folder)
        return [] if found is None else found.rows()

    def frame(self) -> pd.DataFrame:
        """The metrics as a table of pandas (the extra `tables`): a row per round, nested names joined by a slash."""
        return frame_of(self.metrics)

    def plot(self, value: str = "") -> Figure:
        """A number over rounds as a figure of matplotlib (the extra `plot`), neither shown nor saved.

        `value` is a column of `frame()`, such as "clients/worst"; without one, what the run is judged by.
        """
        runs = {str(self.summary["algorithm"]): [self.metrics]}
        return figure_of(runs, value or judged_value(runs, [self.summary]))


class Finished(NamedTuple):
    """All rounds are done, and nothing is written of it yet."""

    state: State
    summary: Record
    sites: Sites | None
    own: OwnModels


def run(
    config: RunConfig,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    observers: Sequence[Observer] = (),
    metrics: Sequence[Measure | Function] = (),
) -> Outcome:
    """Start a new run. `data` and `model` replace the configuration's own, for data and networks that have no name.

    `metrics` are measured beside what the configuration asks for: functions of logits [N, C] and labels [N].
    """
    federation = Federation.build(config, data, model)
    evaluator = evaluator_of(federation, metrics)
    folder = new_folder(federation.config, federation.identity)
    return carry_out(federation, evaluator, folder, Audience(observers), Simulation(federation))


def resume(
    folder: Path | str,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    observers: Sequence[Observer] = (),
    metrics: Sequence[Measure | Function] = (),
) -> Outcome:
    """Go on with a run that was stopped, to the same bits. Own data, networks and metrics must be given again.

    A run that came to its end is returned as it is.
    """
    folder = Path(folder)
    federation = Federation.build(read_config(folder), data, model)
    identity.compare(folder, federation.identity)
    evaluator = evaluator_of(federation, metrics)
    return carry_out(federation, evaluator, folder, Audience(observers), Simulation(federation))


def carry_out(
    federation: Federation, evaluator: Evaluator, folder: Path, audience: Audience, hosting: Hosting
) -> Outcome:
    """All rounds that are still to do, in a run's folder, with clients wherever they live."""
    config = federation.config
    checkpoints = Checkpoints(folder / "checkpoint", config_hash(config), config.checkpoint.keep)
    with numerics(config.precision), only_here(folder), hosting.memory(checkpoints.clients_folder) as store:
        snapshot, refused = checkpoints.newest(store)
        mended = bool(refused)  # what a damaged checkpoint held is made again
        if not mended and (known := finished(folder, snapshot is not None)) is not None:
            if snapshot is not None:
                store.restore(snapshot.clients)
                checkpoints.prune(store)  # it was perhaps killed when it was about to
            return _as_it_is(federation, snapshot, known, folder, audience)
        with closing(_logs(folder, snapshot, refused)) as logs:
            done = _rounds(federation, evaluator, checkpoints, store, snapshot, logs, audience, hosting)
            logs.sync()
            metrics, model = logs.read("metrics"), federation.algorithm.export(done.state)
            summary = sealed(done.summary, metrics[-1], logs.digest)
            if "diverged" not in summary:  # a model that answers with no numbers is none
                write_model(folder, federation, model, done.own, summary, done.sites)
            write_summary(folder, summary)  # last: with it the run is over
            if not config.checkpoint.every:
                checkpoints.release(store)
            return _told(Outcome(model, metrics, summary, folder), audience)


def _logs(folder: Path, snapshot: Snapshot | None, refused: Sequence[str]) -> RunLogs:
    """The logs up to the snapshot, with notes on what a run goes on from."""
    logs = RunLogs(folder, snapshot.round, snapshot.metrics) if snapshot is not None else RunLogs(folder, 0)
    now = versions()
    other = [
        f"{name} {shown(before)} (now {now[name]})"
        for name, before in (snapshot.versions if snapshot is not None else {}).items()
        if name in now and now[name] != before
    ]
    notes = [f"checkpoint passed over: {reason}" for reason in refused]
    if other:
        notes.append(f"round {snapshot.round if snapshot else 0} was made with {', '.join(other)}")
        warnings.warn(f"{folder}: {notes[-1]}; the run goes on, and other versions may give other bits", stacklevel=5)
    try:
        for note in notes:
            logs.note(note)
    except BaseException:
        logs.close()
        raise
    return logs


def _rounds(
    federation: Federation,
    evaluator: Evaluator,
    checkpoints: Checkpoints,
    store: Remembered,
    snapshot: Snapshot | None,
    logs: RunLogs,
    audience: Audience,
    hosting: Hosting,
) -> Finished:
    """The rounds that are left, and what all of them came to."""
    config = federation.config
    own = hosting.own_models()
    kept = to_device(snapshot.state, federation.device) if snapshot is not None else {}
    clients = hosting.clients(store, own, audience, with_test=evaluator.at_clients, kept=kept)
    try:
        start = clients.start()
        if snapshot is None:
            state, first = federation.first_state(start), 0
        else:
            store.restore(snapshot.clients)
            checkpoints.prune(store)  # it was perhaps killed when it was about to
            state, first = without_clock(kept), snapshot.round
        audience.started(config, logs.folder, config.rounds, first)
        judge = partial(evaluator.round, memory_of=clients.memory_of)
        loop = Loop(federation.algorithm, clients.world, clients.exchange, judge, audience.phase)
        for done in loop.rounds(state, first, config.rounds):
            state, record = done.state, done.record
            if done.round == 1 and start.bytes_up + start.bytes_down:
                record |= {"start_bytes_up": start.bytes_up, "start_bytes_down": start.bytes_down}
            if done.round == 1 and start.missing:
                record["missing"] = named(start.missing) | record.get("missing", {})
            record = logs.write("metrics", record)
            if not config.checkpoint.every:
                logs.sync()
                checkpoints.prune(store)  # what clients remembered before, where it lies on the disk
            elif _is_kept(config, done.round):
                logs.sync()
                whole = {**state, **clients.under_way()}
                checkpoints.save(Snapshot(done.round, whole, store.save(), logs.digest), store, versions())
                clients.settled(done.round)
                done.clock.lap("checkpoint")
            logs.write("timings", {"round": done.round, **done.clock.laps})
            audience.round_ended(done.round, record)
            audience.state_changed(done.round, Glance(state, federation.algorithm.export))
        rehearsal = clients.rehearsal()
        final = evaluator.final(state, own.watching(rehearsal))
        summary = evaluator.summary(logs.read("metrics"), logs.read("timings")) | evaluator.end(final)
        sites = evaluator.sites(final)
        write_sites(logs.folder, sites)
        if not federation.real:  # else what classes they hold is not known here
            write_division(logs.folder, federation.data)
        own.complete(rehearsal, federation.algorithm.message(state))
        missing = [*logs.read("metrics"), {"missing": named(rehearsal.missing)}]
        summary |= account(missing, federation.train_data.name_of)
    finally:
        clients.close()
    return Finished(state, summary, sites, own)


def _as_it_is(
    federation: Federation, snapshot: Snapshot | None, summary: Record, folder: Path, audience: Audience
) -> Outcome:
    """A run that came to its end before: nothing of it is done again, or changed."""
    rounds = federation.config.rounds
    with closing(RunLogs(folder, rounds, summary["metrics_sha256"])) as logs:
        metrics = logs.read("metrics")
    model = None
    if snapshot is not None and snapshot.round == rounds:
        model = federation.algorithm.export(to_device(snapshot.state, federation.device))
    elif "diverged" not in summary:
        try:
            model = read_model(folder, federation)
        except DataError as error:
            warnings.warn(
                f"{folder} came to its end and is returned as it is, without its network: no checkpoint of its last "
                f"round is there (checkpoint.every = 0 keeps none), and {error}",
                stacklevel=4,
            )
    audience.started(federation.config, folder, rounds, rounds)
    return _told(Outcome(model, metrics, summary, folder), audience)


def _told(outcome: Outcome, audience: Audience) -> Outcome:
    """What came of a run, once everything is written; DivergedError if it is worth nothing."""
    audience.ended(outcome.summary)
    if "diverged" in outcome.summary:
        raise DivergedError(f"{outcome.folder}: {outcome.summary['diverged']} No model was written.")
    return outcome


def _is_kept(config: RunConfig, round: int) -> bool:
    every = config.checkpoint.every
    return round % every == 0 or round == config.rounds
