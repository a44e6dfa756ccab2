"""A whole run, top to bottom: build, rounds, evaluation, logs, checkpoints, summary."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from accord.config import RunConfig, config_hash, load_config, to_toml
from accord.core.algorithm import Algorithm
from accord.core.keys import Key
from accord.core.tensors import Trees
from accord.core.types import Replies, State, World
from accord.data.federated import Dataset, FederatedData
from accord.engine.batched import Batched
from accord.engine.build import (
    build_algorithm,
    build_data,
    build_model,
    build_setup,
    check_data,
    choose_device,
    fits,
    judged_on_validation,
    pooled,
)
from accord.engine.checkpoint import Checkpoints, Snapshot, to_device
from accord.engine.client import Executor, Site
from accord.engine.exchange import LocalExchange
from accord.engine.files import only_here, write_atomic
from accord.engine.logs import RunLogs, new_folder, versions
from accord.engine.precision import numerics
from accord.engine.processes import Processes, can_fork, cores
from accord.engine.sequential import Sequential, visitor
from accord.engine.store import ClientStore
from accord.errors import CheckpointError, ConfigError
from accord.measures import Evaluator, Measure, Scene, as_measure
from accord.measures.metric import Function
from accord.observe import Observer

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
    federation = _Federation(config, data, model, metrics)
    folder = new_folder(config)
    write_atomic(folder / "config.toml", to_toml(config))
    with numerics(config.precision), only_here(folder):
        return federation.carry_out(folder, observers)


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
    config = load_config(folder / "config.toml")
    with numerics(config.precision), only_here(folder):
        return _Federation(config, data, model, metrics).carry_out(folder, observers)


class _Federation:
    """Everything that is built once, and checked before anything is written."""

    def __init__(
        self,
        config: RunConfig,
        data: FederatedData | Dataset | None,
        network: nn.Module | None,
        metrics: Sequence[Measure | Function] = (),
    ) -> None:
        self.config = config
        self.device = choose_device(config.device)
        self.data = data if isinstance(data, FederatedData) else build_data(config, data)
        check_data(self.data)
        if config.evaluate.split == "validation":
            self.data = judged_on_validation(self.data)
        self.model = build_model(config, self.data, network, self.device)
        self.algorithm: Algorithm = build_algorithm(config, build_setup(config, self.data, self.model))
        self.train_data = pooled(self.data) if self.algorithm.pools_data else self.data
        self.key = Key(config.seed)
        may_train = self.train_data.sizes > 0
        may_train[list(self.train_data.unseen)] = False
        self.members: list[int] = np.flatnonzero(may_train).tolist()
        self.evaluator = Evaluator(self._scene(), [as_measure(given) for given in metrics])

    def _scene(self) -> Scene:
        config, data = self.config, self.data
        facts = {
            "algorithm": config.algorithm.name,
            "dataset": config.data.name,
            "seed": config.seed,
            "rounds": config.rounds,
            "split": config.evaluate.split,
            "versions": versions(),
            **({"note": data.note} if data.note else {}),
        }
        return Scene(
            self.algorithm,
            # Judged where the model is: on a GPU the samples stay there, unless they would take much of its memory.
            data.on(self.device) if fits(data, self.device) else data,
            self.device,
            self.members,
            config.rounds,
            config.evaluate.every,
            config.evaluate.batch_size,
            config.targets,
            config.evaluate.options,
            facts,
            visitor(Site(data, self.key, self.device, with_test=True), self.algorithm.schedule),
        )

    def world(self, round: int) -> World:
        """What the server knows in `round`."""
        return World(round, self.members, self.train_data.sizes, self.key)

    def executor(self, done: Callable[[int, int], None]) -> Executor:
        """All clients at once on a GPU, processes where they pay, the plain loop elsewhere."""
        site = Site(self.train_data, self.key, self.device, self.evaluator.at_clients)
        name, tasks = self.config.executor, self.algorithm.tasks
        if name == "auto":
            pays = self.device.type == "cpu" and can_fork() and len(self.members) > 1 and cores() > 1
            name = "batched" if self.device.type == "cuda" else "processes" if pays else "sequential"
        if name == "batched":
            if self.device.type != "cuda":
                raise ConfigError("executor = 'batched' needs a GPU, and torch sees none here: use executor = 'auto'")
            return Batched(site, tasks, done)
        if name == "processes":
            return Processes(site, tasks, self.config.workers, done)
        return Sequential(site, tasks, done)

    def carry_out(self, folder: Path, observers: Sequence[Observer]) -> Outcome:
        """All rounds that are still to do."""
        config, algorithm = self.config, self.algorithm
        place = {"round": 0}

        def client_done(done: int, total: int) -> None:
            for observer in observers:
                observer.client_done(place["round"] + 1, "train", done, total)

        checkpoints = Checkpoints(folder / "checkpoint", config_hash(config), max(config.checkpoint.keep, 1))
        store = ClientStore(checkpoints.clients_folder, self.train_data.sizes, config.checkpoint.memory_limit_mb << 20)
        snapshot, refused = checkpoints.newest(store)
        logs = RunLogs(folder, snapshot.round if snapshot else 0)
        for reason in refused:
            logs.note(f"checkpoint passed over: {reason}")
        executor = self.executor(client_done)  # forked before any observer starts a thread
        try:
            start = self._exchange(executor, store, 0)
            state = self._first_state(snapshot, store, start)
            first = snapshot.round if snapshot else 0
            for observer in observers:
                observer.started(config, folder, config.rounds, first)
            for round in range(first, config.rounds):
                place["round"] = round
                clock = _Clock()
                for observer in observers:
                    observer.phase(round + 1, "train")
                exchange = self._exchange(executor, store, round)
                new_state, replies = algorithm.round(state, self.world(round), exchange)
                clock.lap("train")
                for observer in observers:
                    observer.phase(round + 1, "evaluate")
                record = self._round_record(round, replies, exchange, start)
                if reported := algorithm.metrics(new_state):
                    record["server"] = reported
                record |= self.evaluator.round(round, state, new_state, replies, self._memory_in(store))
                clock.lap("evaluate")
                state = new_state
                logs.write("metrics", record)
                if config.checkpoint.every and (
                    (round + 1) % config.checkpoint.every == 0 or round + 1 == config.rounds
                ):
                    checkpoints.save(Snapshot(round + 1, state, store.save()), store, versions())
                    clock.lap("checkpoint")
                logs.write("timings", {"round": round + 1, **clock.laps})
                for observer in observers:
                    observer.round_ended(round + 1, record)
            # nothing is kept of what clients do after the last round
            last = self._exchange(executor, store, config.rounds, keep_memory=False)
            summary = self.evaluator.summary(logs.read("metrics"), logs.read("timings"))
            summary |= self.evaluator.end(state, last)
        finally:
            executor.close()
            logs.close()
        write_atomic(folder / "summary.json", json.dumps(summary, indent=2))
        for observer in observers:
            observer.ended(summary)
        return Outcome(algorithm.export(state), logs.read("metrics"), summary, folder)

    def _first_state(self, snapshot: Snapshot | None, store: ClientStore, exchange: LocalExchange) -> State:
        if snapshot is not None:
            store.restore(snapshot.clients)
            return to_device(snapshot.state, self.device)
        world = self.world(0)
        state = to_device(self.algorithm.init(world), self.device)
        return self.algorithm.start(state, world, exchange)

    def _exchange(
        self, executor: Executor, store: ClientStore, round: int, *, keep_memory: bool = True
    ) -> LocalExchange:
        clients = self.config.clients
        return LocalExchange(
            executor,
            store,
            self.key,
            round,
            self.algorithm.schedule.at(round),
            minimum=clients.minimum if keep_memory else 1,
            drop_rate=clients.drop_rate if keep_memory else 0.0,
            keep_memory=keep_memory,
        )

    def _round_record(self, round: int, replies: Replies, exchange: LocalExchange, start: LocalExchange) -> Record:
        seen = replies.metric("seen").sum()
        record: Record = {
            "round": round + 1,
            "loss": float(replies.metric("loss").sum() / seen) if seen > 0 else None,
            "cohort": list(replies.ids),
            "bytes_up": exchange.bytes_up,
            "bytes_down": exchange.bytes_down,
        }
        if round == 0 and start.bytes_up + start.bytes_down:
            record |= {"start_bytes_up": start.bytes_up, "start_bytes_down": start.bytes_down}
        if exchange.missing:
            record["missing"] = {str(k): why.strip().splitlines()[-1] for k, why in sorted(exchange.missing.items())}
        return record

    def _memory_in(self, store: ClientStore) -> Callable[[int], Trees]:
        return lambda client: to_device(store.get(client) or {}, self.device)


class _Clock:
    """Seconds per phase of a round."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now
