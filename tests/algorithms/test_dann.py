"""DANN by turns, against alternating SGD written out, in double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from accord.algorithms.dann import Discriminator, dann
from accord.algorithms.fedavg import fedavg
from accord.core.keys import Key
from accord.core.optim import SGD, Adam
from accord.core.plan import Plan
from accord.core.types import World
from accord.errors import ConfigError
from accord.executors.sequential import one_thread
from support.baselines import COHORTS, close, descend, features, make, mean, prefixed, processes_agree, tree_of
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params, forward, samples

LAM = 0.7


def discriminate(d: Params, f: Tensor) -> Tensor:
    for layer in range(3):
        f = f @ d[f"{layer}.weight"].T + d[f"{layer}.bias"]
        f = torch.relu(f) if layer < 2 else f
    return f


@one_thread()
def train(run: TinyRun, k: int, start: Params, round: int) -> Params:
    """Step 0, 2, 4: the model on CE - lam CE_D; step 1, 3, 5: the discriminator on CE_D."""
    x, y = samples(run, k)
    w = start
    velocity = {n: torch.zeros_like(p) for n, p in start.items()}
    for number, rows in enumerate(run.batches(k, round=round)):
        index = torch.as_tensor(rows)
        leaves = {n: p.clone().requires_grad_() for n, p in w.items()}
        m, d = tree_of(leaves, "m/"), tree_of(leaves, "d/")
        label = torch.full((len(index),), k)
        found = F.cross_entropy(discriminate(d, features(m, x[index])), label)
        loss = found if number % 2 else F.cross_entropy(forward(m, x[index]), y[index]) - LAM * found
        moving = [n for n in leaves if n.startswith("d/" if number % 2 else "m/")]
        for n, g in zip(moving, torch.autograd.grad(loss, [leaves[n] for n in moving]), strict=True):
            velocity[n] = 0.5 * velocity[n] + g + 0.01 * w[n]
            w = {**w, n: w[n] - 0.1 * velocity[n]}
    return w


def test_three_rounds(float64: None) -> None:
    run = make(dann, {"lam": LAM}, sampler=Given(*COHORTS), optimizer=SGD(0.5, 0.01))
    assert run.state["discriminator"]["2.weight"].shape == (4, 256)
    assert run.state["discriminator"]["0.weight"].shape == (256, 5)
    w = prefixed("m/", run.state["model"]) | prefixed("d/", run.state["discriminator"])
    for round, cohort in enumerate(COHORTS):
        w = mean([train(run, k, w, round) for k in cohort])
    run.rounds(3)
    assert close(run.state["model"], tree_of(w, "m/"))
    assert close(run.state["discriminator"], tree_of(w, "d/"))


def test_a_single_step_is_the_models(float64: None) -> None:
    run = make(dann, {"lam": LAM}, plan=Plan(steps=1, batch_size=4))
    drawn = dict(run.state["discriminator"])
    run.rounds(1)
    assert close(run.state["discriminator"], drawn, 1e-15)  # the mean of four copies


def test_adam_counts_only_its_own_turns(float64: None) -> None:
    """Adam's first step is lr * sign(g): both the model's in step 1 and the discriminator's in step 2."""
    run = make(dann, {"lam": LAM}, sampler=Given([1]), optimizer=Adam(eps=1e-30), plan=Plan(steps=2, batch_size=4))
    w, d = dict(run.state["model"]), dict(run.state["discriminator"])
    run.rounds(1)
    for before, after in ((w, run.state["model"]), (d, run.state["discriminator"])):
        for n, p in before.items():
            moved = (after[n] - p).abs()
            dead = moved == 0  # a weight behind a dead unit has no gradient
            assert torch.allclose(moved[~dead], torch.full_like(moved[~dead], 0.1), rtol=1e-6)
    assert not dead.all()


def test_lam_zero_is_fedavg_with_uniform_weights() -> None:
    ours = make(dann, {"lam": 0.0}, sampler=Given(*COHORTS)).rounds(3)
    assert equal_trees(ours.state, make(fedavg, {"weight": "uniform"}, sampler=Given(*COHORTS)).rounds(3).state)


def test_clipping_is_per_network(float64: None) -> None:
    """One step clipped to 0.01 moves the model by exactly lr * 0.01."""
    data, model = tiny_data(dtype=torch.float64), tiny_model()
    setup = replace(tiny_setup(data, model, sampler=Given([1]), plan=Plan(steps=1, batch_size=4)), clip=0.01)
    run = make(lambda _: dann(setup, lam=LAM), data=data, model=model)
    before = dict(run.state["model"])
    run.rounds(1)
    moved = sum(float(((run.state["model"][n] - p) ** 2).sum()) for n, p in before.items()) ** 0.5
    assert moved == pytest.approx(0.1 * 0.01)


def test_processes_agree() -> None:
    assert processes_agree(dann)


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="lam"):
        dann(tiny_setup(tiny_data(), tiny_model()), lam=-0.5)


def test_plain_sgd_helper_agrees_with_the_loop(float64: None) -> None:
    """The two references, written differently, agree: a check of the check."""
    run = make(dann, {"lam": LAM})
    x, y = samples(run, 1)
    start = prefixed("m/", run.state["model"]) | prefixed("d/", run.state["discriminator"])

    def both(p: Params, index: Tensor) -> Tensor:
        m, d = tree_of(p, "m/"), tree_of(p, "d/")
        label, f = torch.full((len(index),), 1), features(m, x[index])
        for_d = F.cross_entropy(discriminate(d, f.detach()), label)
        for_m = F.cross_entropy(discriminate({n: t.detach() for n, t in d.items()}, f), label)
        return F.cross_entropy(forward(m, x[index]), y[index]) - LAM * for_m + for_d

    names = list(start)
    one = descend(
        start,
        run.batches(1),
        both,
        momentum=0.5,
        decay=0.01,
        moves=lambda number: [n for n in names if n.startswith("d/" if number % 2 else "m/")],
    )
    assert close(one, train(run, 1, start, 0))


def test_clients_that_are_not_asked_have_an_output_too() -> None:
    drawn = Discriminator(0.1).state(tiny_model(), World(0, [0, 2], np.array([3, 4, 1]), Key(0)))["discriminator"]
    assert drawn["2.bias"].shape == (3,)


def test_features_nobody_has_counted_cannot_be_told_apart() -> None:
    model = tiny_model()
    model.num_features = 0
    setup = tiny_setup(tiny_data(), model)
    with pytest.raises(ConfigError, match="cannot size its discriminator"):
        dann(setup)
    assert dann(setup, lam=0.0)
