"""Client drift: do clients pull the model in different directions?

A few rounds of FedAvg on some samples of some clients; and the same with these samples dealt at random to clients of
the same sizes. What differs between the two is due to who holds what: sizes, noise of small batches and the network are
the same. A part of the training samples is held back to judge with; nothing of the test data is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from accord.config import RunConfig, from_dict, to_dict
from accord.core.keys import Key
from accord.core.tensors import subtract
from accord.core.types import Replies, State
from accord.data.federated import FederatedData, Groups, Index, Pool
from accord.diagnosis.features import Views
from accord.diagnosis.finding import Finding, Severity, graded, unknown
from accord.diagnosis.gathered import Gathered
from accord.engine.evaluation import evaluator_of
from accord.engine.federation import Federation
from accord.engine.loop import Loop
from accord.errors import AccordError, DivergedError
from accord.measures.drift import cosines
from accord.problems import PROBLEMS

Floats = npt.NDArray[np.float64]
NAME, TITLE = "drift", "Client drift and conflicting updates"
MILD, STRONG = 0.2, 0.5  # share of the agreement of updates that is lost
CLIENTS, SAMPLES, FEWEST = 12, 160, 8
ROUNDS, EPOCHS, STEPS = 6, 2, 20
HELD = 0.25  # of the samples, to judge with
BUDGET = 6e11  # operations of all training: some 20 seconds of one core
REDEALT = 2  # random divisions
AGREE = 0.05  # mean cosine of updates, below which there is no agreement that could be lost


@dataclass(frozen=True)
class Probed:
    """What a short run showed."""

    cosines: Floats  # [k, k] of clients' updates with one another, mean over rounds
    step: Floats  # [k] with the server's step, mean over rounds
    curve: tuple[float, ...]  # the leading number after every round

    @property
    def agreement(self) -> float:
        """Mean cosine of two clients' updates."""
        return float(self.cosines[np.triu_indices(len(self.cosines), 1)].mean())

    @property
    def conflicts(self) -> float:
        """Share of pairs that pull against each other."""
        return float((self.cosines[np.triu_indices(len(self.cosines), 1)] < 0).mean())

    @property
    def score(self) -> float:
        """Of the last two rounds."""
        return float(np.mean(self.curve[-2:]))


def client_drift(
    data: FederatedData, some: Gathered, views: Views, config: RunConfig, network: nn.Module | None, key: Key
) -> Finding:
    """Of the gathered clients."""
    able = np.flatnonzero(some.sizes >= FEWEST)
    if len(able) < 2:
        return unknown(NAME, TITLE, "Fewer than two clients have samples enough to train on for a few rounds.")
    rng = key.at("diagnosis.probe")
    chosen = able if len(able) <= CLIENTS else np.sort(rng.choice(able, CLIENTS, replace=False))
    settings = _settings(config, key)
    cost = _operations(settings, data, network)
    passes = 3 * len(chosen) * ROUNDS * min(settings.local.epochs, EPOCHS) * (1 + REDEALT) * (1 - HELD)
    most = int(min(SAMPLES, BUDGET / max(cost * passes, 1)))
    small = most < 24
    if small and data.problem == "tokens":
        return unknown(NAME, TITLE, "The network is too large for a short probe here.")
    x = torch.from_numpy(views.rows).float() if small else some.x
    if small:
        network, settings, most = None, _small(settings), SAMPLES
    train, held = _parts(some, chosen, most, rng)
    pool = Pool(x, some.y)
    fields = None if small else data.fields
    try:
        real = _probe(data, settings, network, _federation(data, pool, fields, train, held))
        dealt = [
            _probe(data, settings, network, _federation(data, pool, fields, _redealt(train, rng), held))
            for _ in range(REDEALT)
        ]
    except DivergedError as error:
        return unknown(NAME, TITLE, f"The probe's training broke off ({error}) Lower local.lr and look again.")
    names = tuple(some.names[k] for k in chosen)
    return _finding(data, real, dealt, names, small, PROBLEMS[data.problem].share)


def _settings(config: RunConfig, key: Key) -> RunConfig:
    """FedAvg with the configuration's network and local settings, and nothing else of it."""
    given = to_dict(config)
    local = {**given["local"], "epochs": min(config.local.epochs, EPOCHS), "optimizer_state": "fresh"}
    if config.local.steps:
        local["steps"] = min(config.local.steps, STEPS)
    if config.local.class_weights != "balanced":
        local["class_weights"] = "none"
    kept: dict[str, Any] = {"model": given["model"], "local": local, "task": given["task"]}
    short = {"rounds": ROUNDS, "seed": key.seed % (1 << 31), "executor": "sequential", "device": "cpu"}
    return from_dict(
        {**kept, **short, "clients": {"fraction": 1.0}, "evaluate": {"confusion": False, "calibration": False}}
    )


def _small(settings: RunConfig) -> RunConfig:
    return from_dict({**to_dict(settings), "model": {"name": "mlp"}})


def _operations(settings: RunConfig, data: FederatedData, network: nn.Module | None) -> float:
    """Of one sample's forward pass, counted; infinitely many where the network cannot be had."""
    from accord.engine.build import build_model
    from accord.engine.problem import facts_of

    try:
        model = build_model(settings, facts_of(settings, data), network, torch.device("cpu"))
        x, _ = data.train_pool.take(np.zeros(2, np.int64) + data.train.order[0])
        params, buffers = model.init()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.train(params, buffers, x)
        size = sum(prod(p.shape) for p in params.values())
        return float(max(counter.get_total_flops() / 2, size / 8))
    except AccordError:
        return float("inf")


def _parts(some: Gathered, chosen: Index, most: int, rng: np.random.Generator) -> tuple[list[Index], list[Index]]:
    """Of every client, positions to train on and to judge with."""
    train, held = [], []
    for client in chosen:
        own = rng.permutation(np.flatnonzero(some.client == client))[:most]
        cut = max(1, round(HELD * len(own)))
        train.append(np.sort(own[cut:]))
        held.append(np.sort(own[:cut]))
    return train, held


def _redealt(lists: Sequence[Index], rng: np.random.Generator) -> list[Index]:
    """The same sizes, anybody's samples."""
    shuffled = rng.permutation(np.concatenate(lists))
    return np.split(shuffled, np.cumsum([len(one) for one in lists])[:-1])


def _federation(
    data: FederatedData, pool: Pool, fields: Any, train: Sequence[Index], held: Sequence[Index]
) -> FederatedData:
    judged = np.concatenate(held)
    tests = Pool(pool.x[judged], pool.y[judged])
    places = Groups.of(np.split(np.arange(len(judged)), np.cumsum([len(one) for one in held])[:-1]))
    return FederatedData(
        name=data.name,
        train_pool=pool,
        test_pool=tests,
        num_classes=data.num_classes,
        train=Groups.of(train),
        validation=Groups.of([[]] * len(train)),
        test=places,
        problem=data.problem,
        classes=data.classes,
        fields=fields,
    )


def _probe(data: FederatedData, settings: RunConfig, network: nn.Module | None, federated: FederatedData) -> Probed:
    federation = Federation.build(settings, federated, network)
    evaluator = evaluator_of(federation)
    pairs: list[Floats] = []
    steps: list[list[float]] = []

    def judge(round: int, old: State, new: State, replies: Replies) -> dict[str, Any]:
        updates = [_moved(model, old["model"]) for model in replies.each("model")]
        step = {name: new["model"][name] - old["model"][name] for name in updates[0]}
        pairs.append(np.array([cosines(updates, update) for update in updates]))
        steps.append(cosines(updates, step))
        return evaluator.round(round, old, new, replies, memory_of=lambda client: {})

    executor = federation.executor()
    try:
        with federation.memory() as store:

            def exchange(round: int) -> Any:
                return federation.exchange(executor, store, round)

            state = federation.first_state(exchange(0))
            loop = Loop(federation.algorithm, federation.world, exchange, judge)
            records = [done.record for done in loop.rounds(state, 0, settings.rounds)]
    finally:
        executor.close()
    key = PROBLEMS[data.problem].headline
    return Probed(np.mean(pairs, 0), np.mean(steps, 0), tuple(float(record[key]) for record in records))


def _moved(model: dict[str, Tensor], old: dict[str, Tensor]) -> dict[str, Tensor]:
    return subtract({name: t.double() for name, t in model.items()}, {name: old[name].double() for name in model})


def lost_agreement(real: float, dealt: Sequence[float]) -> float:
    """Share of the agreement between updates that is not there with the real division; 0 where there was none."""
    usual = float(np.mean(dealt))
    return (usual - real) / usual if usual >= AGREE else 0.0


def _finding(
    data: FederatedData, real: Probed, dealt: Sequence[Probed], names: tuple[str, ...], small: bool, share: bool
) -> Finding:
    lost = lost_agreement(real.agreement, [one.agreement for one in dealt])
    usual = float(np.mean([one.agreement for one in dealt]))
    against = float(np.mean([one.conflicts for one in dealt]))
    sure = real.agreement < min(one.agreement for one in dealt)
    parted = max(lost if sure else 0.0, real.conflicts - max(one.conflicts for one in dealt))
    severity: Severity = graded(parted, MILD, STRONG)
    problem = PROBLEMS[data.problem]
    redealt = float(np.mean([one.score for one in dealt]))
    numbers: dict[str, float | int | None] = {
        "update_cosine": real.agreement,
        "update_cosine_if_dealt_at_random": usual,
        "agreement_lost": lost,
        "conflicting_pairs": real.conflicts,
        "conflicting_pairs_if_dealt_at_random": against,
        "cosine_with_step": float(real.step.mean()),
        problem.headline: real.score,
        f"{problem.headline}_if_dealt_at_random": redealt,
        "rounds": len(real.curve),
        "clients": len(names),
    }

    pulled = f"the updates of two clients have a cosine of {real.agreement:.2f}, of {usual:.2f} with the same samples "
    pulled += (
        f"dealt at random; {100 * real.conflicts:.0f} % of the pairs pull against each other, {100 * against:.0f} %"
    )
    sentence = f"Clients pull {'alike' if severity == 'none' else 'apart'}: {pulled} then."
    if small:
        sentence += " (The probe used a small network on summaries of the inputs, as its own would take too long.)"
    order = np.argsort(real.step, kind="stable")
    return Finding(
        NAME,
        TITLE,
        severity,
        sentence,
        numbers,
        tuple(names[k] for k in order if real.step[k] < 0)[:4] if severity != "none" else (),
        {
            "kind": "probe",
            "rows": list(names),
            "columns": list(names),
            "cells": real.cosines.round(3).tolist(),
            "curves": {
                "as they are": [round(v, 5) for v in real.curve],
                "dealt at random": np.mean([one.curve for one in dealt], 0).round(5).tolist(),
            },
            "percent": share,
            "value": problem.title,
            "caption": "Cosine of two clients' updates: 1 pull alike, below 0 against each other",
        },
    )
