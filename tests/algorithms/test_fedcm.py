"""FedCM: the direction clients take and the server keeps, against a plain reference."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedcm import fedcm
from accord.core.optim import SGD, Adam, Schedule
from accord.core.plan import Plan
from accord.core.tensors import num_bytes
from accord.errors import ConfigError
from accord.executors.processes import Processes
from support.federation import Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.methods import tiny
from support.reference import Params, local_sgd

COHORTS = ([0, 2], [1, 3], [0, 1])


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("eta_g", [1.0, 0.5])
def test_three_rounds_with_unequal_steps(rho: float, eta_g: float, float64: None) -> None:
    run = tiny(fedcm, {"alpha": 0.3, "server_lr": eta_g}, sampler=Given(*COHORTS), optimizer=SGD(rho))
    w = dict(run.state["model"])
    d: Params = {n: torch.zeros_like(p) for n, p in w.items()}
    for round, cohort in enumerate(COHORTS):

        def direction(g: Params, d: Params = d, round: int = round) -> Params:
            return g if round == 0 else {n: 0.3 * g[n] + 0.7 * d[n] for n in g}

        done = [local_sgd(run, k, w, round, momentum=rho, correct=direction) for k in cohort]
        assert len({tau for _, tau in done}) == 2  # clients of different size: each is divided by its own steps
        # step s counts 1 + rho + ... + rho^(tau - s) times
        far = [sum((1 - rho ** (tau - s + 1)) / (1 - rho) for s in range(1, tau + 1)) for _, tau in done]
        d = {n: sum((w[n] - m[n]) / (0.1 * t) for (m, _), t in zip(done, far, strict=True)) / 2 for n in w}
        w = {n: w[n] + eta_g * (sum(m[n] for m, _ in done) / 2 - w[n]) for n in w}
    run.rounds(3)
    for n in w:
        assert torch.allclose(run.state["model"][n], w[n], rtol=1e-9, atol=1e-10)
        assert torch.allclose(run.state["momentum"][n], d[n], rtol=1e-9, atol=1e-10)


def test_first_round_is_plain_sgd() -> None:
    assert equal_trees(
        {"model": tiny(fedcm).rounds(1).state["model"]},
        {"model": tiny(fedavg, {"weight": "uniform"}).rounds(1).state["model"]},
    )


def test_alpha_one_is_fedavg_bit_for_bit() -> None:
    ours, plain = tiny(fedcm, {"alpha": 1.0}).rounds(3), tiny(fedavg, {"weight": "uniform"}).rounds(3)
    assert equal_trees({"model": ours.state["model"]}, {"model": plain.state["model"]})


def test_the_learning_rate_of_the_round_is_divided_out(float64: None) -> None:
    data, model = tiny_data(dtype=torch.float64), tiny_model()
    setup = replace(tiny_setup(data, model), schedule=Schedule(0.1, "exponential", decay=0.5))
    run = TinyRun(fedcm(setup), data=data, model=model).rounds(1)
    start = dict(run.state["model"])
    run.rounds(1)
    assert run.replies is not None
    steps = [len(run.batches(k, round=1)) for k in range(4)]
    for n, value in run.state["momentum"].items():
        models = [reply[n] for reply in run.replies.each("model")]
        expected = sum((start[n] - m) / (0.05 * t) for m, t in zip(models, steps, strict=True)) / 4
        assert torch.allclose(value, expected, atol=1e-12)


@pytest.mark.parametrize(("rho", "nesterov"), [(0.0, False), (0.4, False), (0.9, False), (0.4, True), (0.9, True)])
def test_effective_steps_of_a_constant_gradient(rho: float, nesterov: bool) -> None:
    optimizer = SGD(rho, nesterov=nesterov)
    for steps in (1, 2, 7):
        params = {"w": torch.zeros((), dtype=torch.float64)}
        state = optimizer.init(params)
        for _ in range(steps):
            optimizer.update(params, {"w": torch.ones((), dtype=torch.float64)}, state, torch.tensor(1.0))
        far = optimizer.effective_steps(torch.tensor(float(steps), dtype=torch.float64))
        assert float(far) == pytest.approx(-float(params["w"]), rel=1e-12)


def test_momentum_does_not_blow_the_direction_up() -> None:
    run = tiny(fedcm, optimizer=SGD(0.9), lr=1e-3)
    run.rounds(1)
    first = max(float(t.abs().max()) for t in run.state["momentum"].values())
    run.rounds(5)
    assert max(float(t.abs().max()) for t in run.state["momentum"].values()) < 2 * first


def test_a_client_without_steps_adds_nothing(float64: None) -> None:
    run = tiny(fedcm, plan=Plan(epochs=1, batch_size=10, last_batch="drop")).rounds(1)  # two clients hold fewer
    start = dict(run.state["model"])
    run.rounds(1)
    assert run.replies is not None
    assert run.replies.metric("steps").tolist() == [0, 0, 1, 1]
    for n, value in run.state["momentum"].items():
        models = [reply[n] for reply in run.replies.each("model")]
        assert torch.equal(models[0], start[n])
        assert torch.equal(models[1], start[n])
        moved = (start[n] - models[2]) / 0.1 + (start[n] - models[3]) / 0.1  # one step each, of four clients
        torch.testing.assert_close(value, moved / 4, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(run.state["model"][n], sum(models) / 4, rtol=1e-12, atol=1e-12)


def test_the_message_is_twice_fedavgs() -> None:
    ours, plain = tiny(fedcm), tiny(fedavg)
    message = ours.algorithm.message(ours.state)
    assert num_bytes(message) == 2 * num_bytes(plain.algorithm.message(plain.state))
    ours.rounds(1)
    assert ours.replies is not None
    assert sorted(ours.replies.results[0].reply) == ["buffers", "model"]


def test_processes_give_the_same_bits() -> None:
    many = tiny(fedcm, executor=partial(Processes, workers=2))
    try:
        assert equal_trees(many.rounds(3).state, tiny(fedcm).rounds(3).state)
    finally:
        many.close()


def test_bad_settings_are_refused() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    for alpha in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="alpha"):
            fedcm(setup, alpha=alpha)
    with pytest.raises(ConfigError, match="server_lr"):
        fedcm(setup, server_lr=0.0)
    with pytest.raises(ConfigError, match="sgd"):
        fedcm(tiny_setup(tiny_data(), tiny_model(), optimizer=Adam()))
