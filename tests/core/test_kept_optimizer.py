"""`local.optimizer_state = kept`: the optimizer goes on where the client's last visit ended."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import accord
from accord.config import load_config
from accord.core.optim import SGD, Adam, Optimizer
from accord.errors import ConfigError
from accord.executors.processes import Processes
from accord.observe import Observer
from support.federation import Given, TinyRun, equal_trees
from support.reference import samples

PAIR = ([0, 2], [0, 2], [0, 2])
APART = ([0, 2], [1, 2], [0, 1])  # everyone is away for a round
SMALL = ["rounds=4", "data.limit=300", "partition.clients=5", "clients.count=3", "executor=sequential"]
MOMENTUM = ["local.momentum=0.9", "local.optimizer_state=kept"]


def tiny(name: str = "fedavg", optimizer: Optimizer | None = None, cohorts: Any = PAIR, **setup: Any) -> TinyRun:
    return TinyRun(name, optimizer=optimizer or SGD(0.9), sampler=Given(*cohorts), **setup)


kept = partial(tiny, keeps_optimizer=True)


def by_torch(run: TinyRun, cohorts: Any, make: Any) -> dict[str, torch.Tensor]:
    """FedAvg with one `torch.optim` optimizer for each client, which lives as long as the federation."""
    nets: dict[int, nn.Module] = {k: run.model.module(*run.model.init()).train() for k in range(4)}
    optimizers = {k: make(net.parameters()) for k, net in nets.items()}
    w = {n: p.clone() for n, p in run.state["model"].items()}
    for round, cohort in enumerate(cohorts):
        for k in cohort:
            nets[k].load_state_dict(w)
            x, y = samples(run, k)
            for rows in run.batches(k, "train", round):
                index = torch.as_tensor(rows)
                optimizers[k].zero_grad()
                F.cross_entropy(nets[k](x[index]), y[index]).backward()
                optimizers[k].step()
        sizes = {k: len(samples(run, k)[1]) for k in cohort}
        share = {k: n / sum(sizes.values()) for k, n in sizes.items()}
        w = {n: sum(share[k] * nets[k].state_dict()[n] for k in cohort) for n in w}
    return w


@pytest.mark.parametrize("cohorts", [PAIR, APART])
@pytest.mark.parametrize(
    ("optimizer", "make"),
    [
        (SGD(0.9), partial(torch.optim.SGD, lr=0.1, momentum=0.9)),
        (SGD(0.5, 0.01, True), partial(torch.optim.SGD, lr=0.1, momentum=0.5, weight_decay=0.01, nesterov=True)),
        (Adam(), partial(torch.optim.Adam, lr=0.1)),
    ],
)
def test_three_rounds_against_optimizers_that_are_never_made_anew(
    optimizer: Optimizer, make: Any, cohorts: Any, float64: None
) -> None:
    run = kept(optimizer=optimizer, cohorts=cohorts)
    expected = by_torch(run, cohorts, make)
    run.rounds(3)
    for name, tensor in expected.items():
        assert torch.allclose(run.state["model"][name], tensor, rtol=1e-9, atol=1e-10)


def test_fresh_is_another_thing_from_the_second_round_on() -> None:
    assert equal_trees({"m": tiny().rounds(1).state["model"]}, {"m": kept().rounds(1).state["model"]})
    assert not equal_trees({"m": tiny().rounds(2).state["model"]}, {"m": kept().rounds(2).state["model"]})
    assert "optimizer" not in (tiny().rounds(2).store.get(0) or {})


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "moon", "fedcm", "fml", "fedper", "fedbr", "fedrep"])
def test_several_processes_give_the_same_bits(name: str) -> None:
    alone, shared = kept(name).rounds(3), kept(name, executor=partial(Processes, workers=2)).rounds(3)
    assert equal_trees(alone.state, shared.state)
    shared.close()


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "moon", "fedcm", "fedmeta"])
def test_interrupted_equals_whole(name: str, tmp_path: Path) -> None:
    sets = [*SMALL, *MOMENTUM, f"algorithm.name={name}", f"out={tmp_path}"]
    whole = accord.run(load_config(None, [*sets, "name=whole"]))
    config = load_config(None, [*sets, "name=cut"])

    class Stop(Observer):
        def round_ended(self, round: int, record: Any) -> None:
            if round == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accord.run(config, observers=[Stop()])
    resumed = accord.resume(tmp_path / "cut")
    assert resumed.metrics == whole.metrics
    a, b = ((tmp_path / run / "metrics.jsonl").read_bytes() for run in ("whole", "cut"))
    assert a == b


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["local.optimizer_state=kept"], "sgd without momentum has no state"),
        ([*MOMENTUM, "algorithm.name=fednova"], "fednova needs local.optimizer_state = 'fresh'"),
        ([*MOMENTUM, "algorithm.name=scaffold"], "scaffold needs local.optimizer_state = 'fresh'"),
        ([*MOMENTUM, "algorithm.name=fedufo"], "more than one model in a round"),
        ([*MOMENTUM, "algorithm.name=apple"], "trains in its own way"),
    ],
)
def test_what_is_refused(sets: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        accord.run(load_config(None, [*SMALL, *sets, f"out={tmp_path}"]))
