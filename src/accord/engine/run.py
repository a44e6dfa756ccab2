"""A whole run, top to bottom: build, rounds, logs, checkpoints, summary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from accord.config import RunConfig, config_hash, load_config, to_toml
from accord.core.tensors import Trees
from accord.data.federated import Dataset, FederatedData
from accord.engine import identity
from accord.engine.checkpoint import Checkpoints, Snapshot, to_device
from accord.engine.evaluation import evaluator_of
from accord.engine.federation import Federation
from accord.engine.files import only_here, write_atomic
from accord.engine.logs import RunLogs, new_folder, versions
from accord.engine.loop import Loop
from accord.engine.missing import account, named
from accord.engine.store import ClientStore
from accord.errors import CheckpointError
from accord.executors.gpu.precision import numerics
from accord.measures import Evaluator, Function, Measure
from accord.observe import Audience, Observer

Record = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: the trained module, the metrics per round, the summary, the folder.

    `model` is None for methods without a global model, and for those whose prediction is more than one module's
    (FedFusion, FedRANE): their state is in the checkpoint.
    """

    model: nn.Module | None
    metrics: list[Record]
    summary: Record
    folder: Path


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
    folder = new_folder(config, federation.data.name)
    identity.keep(folder, federation.identity)
    write_atomic(folder / "config.toml", to_toml(config))
    return _carry_out(federation, evaluator, folder, Audience(observers))


def resume(
    folder: Path | str,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    observers: Sequence[Observer] = (),
    metrics: Sequence[Measure | Function] = (),
) -> Outcome:
    """Go on with a run that was stopped, to the same bits. Own data, networks and metrics must be given again."""
    folder = Path(folder)
    if not (folder / "config.toml").is_file():
        raise CheckpointError(f"{folder} holds no run: there is no config.toml in it")
    federation = Federation.build(load_config(folder / "config.toml"), data, model)
    identity.compare(folder, federation.identity)
    return _carry_out(federation, evaluator_of(federation, metrics), folder, Audience(observers))


def _carry_out(federation: Federation, evaluator: Evaluator, folder: Path, audience: Audience) -> Outcome:
    """All rounds that are still to do."""
    config, algorithm = federation.config, federation.algorithm
    checkpoints = Checkpoints(folder / "checkpoint", config_hash(config), config.checkpoint.keep)
    with numerics(config.precision), only_here(folder), federation.memory(checkpoints.clients_folder) as store:
        snapshot, refused = checkpoints.newest(store)
        logs = RunLogs(folder, snapshot.round if snapshot else 0)
        for reason in refused:
            logs.note(f"checkpoint passed over: {reason}")
        # Workers are forked here, before any observer starts a thread.
        executor = federation.executor(audience.client_done_in_round, with_test=evaluator.at_clients)
        try:
            start = federation.exchange(executor, store, 0)
            if snapshot is None:
                state, first = federation.first_state(start), 0
            else:
                store.restore(snapshot.clients)
                checkpoints.prune(store)  # it was perhaps killed when it was about to
                state, first = to_device(snapshot.state, federation.device), snapshot.round
            audience.started(config, folder, config.rounds, first)
            to_clients = partial(federation.exchange, executor, store)
            judge = partial(evaluator.round, memory_of=partial(_memory, federation, store))
            loop = Loop(algorithm, federation.world, to_clients, judge, audience.phase)
            for done in loop.rounds(state, first, config.rounds):
                state, record = done.state, done.record
                if done.round == 1 and start.bytes_up + start.bytes_down:
                    record |= {"start_bytes_up": start.bytes_up, "start_bytes_down": start.bytes_down}
                if done.round == 1 and start.missing:
                    record["missing"] = named(start.missing) | record.get("missing", {})
                logs.write("metrics", record)
                if _is_kept(config, done.round):
                    checkpoints.save(Snapshot(done.round, state, store.save()), store, versions())
                    done.clock.lap("checkpoint")
                logs.write("timings", {"round": done.round, **done.clock.laps})
                audience.round_ended(done.round, record)
            rehearsal = federation.exchange(executor, store, config.rounds, rehearsal=True)
            summary = evaluator.summary(logs.read("metrics"), logs.read("timings")) | evaluator.end(state, rehearsal)
            summary |= account([*logs.read("metrics"), {"missing": named(rehearsal.missing)}])
        finally:
            executor.close()
            logs.close()
        write_atomic(folder / "summary.json", json.dumps(summary, indent=2))
        audience.ended(summary)
        return Outcome(algorithm.export(state), logs.read("metrics"), summary, folder)


def _memory(federation: Federation, store: ClientStore, client: int) -> Trees:
    """What a client keeps, where models are judged."""
    return to_device(store.get(client) or {}, federation.device)


def _is_kept(config: RunConfig, round: int) -> bool:
    every = config.checkpoint.every
    return bool(every) and (round % every == 0 or round == config.rounds)
