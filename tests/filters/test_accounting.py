"""Epsilons against the papers' formulas, written here in float64, and against published numbers."""

from __future__ import annotations

import math

import pytest
from scipy.special import log_ndtr, ndtr  # type: ignore[import-untyped]

from accord.core.plan import Plan
from accord.errors import ConfigError
from accord.filters import Budget, accounting
from accord.filters.accounting import Draw
from accord.sampling import Cyclic, Everyone, Poisson, Uniform, Weighted

DELTA = 1e-5


def balle_wang_delta(epsilon: float, sigma: float) -> float:
    """Theorem 8 of Balle and Wang (ICML 2018), sensitivity 1."""
    first = ndtr(1 / (2 * sigma) - epsilon * sigma)
    return float(first - math.exp(epsilon + log_ndtr(-1 / (2 * sigma) - epsilon * sigma)))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0, 10.0])
@pytest.mark.parametrize("times", [1, 7, 100])
def test_gaussians_alone_are_exact(sigma: float, times: int) -> None:
    found = accounting.gaussian(sigma, times, DELTA)
    assert balle_wang_delta(found, sigma / math.sqrt(times)) == pytest.approx(DELTA, rel=1e-6)


def test_next_to_no_noise_costs_what_zcdp_says() -> None:
    """Bun and Steinke 2016, Proposition 1.3: rho = 1 / (2 sigma^2)."""
    rho = 7 / (2 * 1e-3**2)
    assert accounting.gaussian(1e-3, 7, DELTA) == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e5)))
    assert accounting.sampled(1e-3, 0.1, 7, DELTA) == accounting.gaussian(1e-3, 7, DELTA)
    assert accounting.gaussian(0.0, 7, DELTA) == math.inf


def mironov(q: float, sigma: float, order: int) -> float:
    """Renyi divergence of a Poisson-sampled Gaussian at a whole order (Mironov, Talwar, Zhang 2019, section 3.3)."""
    terms = [
        math.lgamma(order + 1)
        - math.lgamma(k + 1)
        - math.lgamma(order - k + 1)
        + k * math.log(q)
        + (order - k) * math.log1p(-q)
        + (k * k - k) / (2 * sigma**2)
        for k in range(order + 1)
    ]
    top = max(terms)
    return (top + math.log(sum(math.exp(t - top) for t in terms))) / (order - 1)


# The table of TensorFlow Privacy's MNIST tutorial (60 000 samples, batches of 256, delta 1e-5): noise, epochs, epsilon
TUTORIAL = [(1.3, 15, 1.19), (1.1, 60, 3.01), (0.7, 45, 7.10)]


@pytest.mark.parametrize(("sigma", "epochs", "published"), TUTORIAL)
def test_the_mnist_tutorial(sigma: float, epochs: int, published: float) -> None:
    q, steps = 256 / 60000, epochs * 60000 // 256
    rdp = {order: steps * mironov(q, sigma, order) for order in range(2, 65)}
    # as it was reckoned then, with the conversion of Mironov 2017
    then = min(value + math.log(1 / DELTA) / (order - 1) for order, value in rdp.items())
    assert then == pytest.approx(published, rel=0.005)
    # the same divergences with the conversion of Canonne, Kamath, Steinke 2020, Proposition 12: a little less
    now = min(value + math.log1p(-1 / order) - math.log(DELTA * order) / (order - 1) for order, value in rdp.items())
    assert accounting.sampled(sigma, q, steps, DELTA) == pytest.approx(now, rel=1e-6)
    assert 0.8 * then < now < then


def test_who_is_drawn_matters() -> None:
    def central(sampler: object, rounds: int = 20, noise: float = 1.0) -> float:
        return accounting.central(noise, Draw.of(sampler, 1000), rounds, DELTA)  # type: ignore[arg-type]

    plain = accounting.gaussian(1.0, 20, DELTA)
    assert central(Weighted(50)) == central(Everyone()) == plain
    assert central(Cyclic(50)) == accounting.gaussian(1.0, 1, DELTA)  # 20 rounds of 50 are everyone's turn, once
    assert central(Cyclic(60)) == accounting.gaussian(1.0, 2, DELTA)
    assert central(Poisson(50)) < central(Uniform(50)) < plain
    q = 0.05
    rdp = {order: 20 * mironov(q, 1.0, order) for order in range(2, 65)}
    now = min(v + math.log1p(-1 / o) - math.log(DELTA * o) / (o - 1) for o, v in rdp.items())
    assert central(Poisson(50)) == pytest.approx(now, rel=1e-6)
    # nothing is gained where half of the clients are asked: exchanging one is worth two
    assert accounting.central(1.0, Draw("uniform", 20, 10), 20, DELTA) == pytest.approx(plain)
    assert Draw.of(Uniform(50), 1000, steady=False).kind == "any"


def test_a_client_that_would_be_alone_is_part_of_delta() -> None:
    few = Draw("poisson", 30, 10)
    alone = 5 * (1 / 3) * (2 / 3) ** 29
    assert 0 < alone < DELTA * 10
    assert accounting.central(1.0, few, 5, 2 * alone) == pytest.approx(accounting.sampled(1.0, 1 / 3, 5, alone))
    assert accounting.central(1.0, few, 5, alone / 2) == math.inf


def test_local_answers_differ_by_twice_the_clip() -> None:
    found = accounting.local(4.0, Draw("uniform", 100, 10), 3, DELTA)
    assert balle_wang_delta(found, 4.0 / 2 / math.sqrt(3)) == pytest.approx(DELTA, rel=1e-6)
    assert accounting.local(4.0, Draw("in turn", 100, 10), 20, DELTA) == accounting.gaussian(2.0, 2, DELTA)


@pytest.mark.parametrize("name", ["central", "local", "sample"])
def test_more_rounds_and_less_noise_cost_more(name: str) -> None:
    def spent(noise: float, rounds: int) -> float:
        budget = Budget.of(
            name, {"noise": noise}, sampler=Uniform(10), sizes=[40, 90, 200], plan=Plan(batch_size=16), rounds=rounds
        )
        assert budget is not None
        return budget.spent(rounds)

    assert spent(1.0, 1) < spent(1.0, 2) < spent(1.0, 10)
    assert spent(4.0, 5) < spent(2.0, 5) < spent(1.0, 5) < spent(0.7, 5)


def test_a_sample_counts_where_it_is_drawn_most_often() -> None:
    budget = Budget.of(
        "sample", {"noise": 1.5}, sampler=Uniform(2), sizes=[20, 64, 64, 640], plan=Plan(2, 0, 32), rounds=4
    )
    assert budget is not None
    by_size = {20: (1.0, 2), 64: (0.5, 4), 640: (0.05, 40)}  # chance and steps of two epochs of batches of 32
    each = [accounting.sampled(1.5, chance, 4 * steps, DELTA) for chance, steps in by_size.values()]
    assert budget.spent(4) == pytest.approx(max(each))
    assert budget.spent(0) == 0.0


@pytest.mark.parametrize("name", ["central", "local", "sample"])
def test_noise_for_a_budget_is_the_least(name: str) -> None:
    def made(**options: float) -> Budget:
        found = Budget.of(name, options, sampler=Uniform(5), sizes=[60] * 40, plan=Plan(batch_size=20), rounds=5)
        assert found is not None
        return found

    noise = made(epsilon=8.0).protection.noise
    assert made(noise=noise).spent(5) <= 8.0 < made(noise=0.995 * noise).spent(5)


def test_noise_or_epsilon_and_not_both() -> None:
    common = {"sampler": Uniform(5), "sizes": [60] * 10, "plan": Plan(), "rounds": 5}
    for options in ({}, {"noise": 1.0, "epsilon": 3.0}):
        with pytest.raises(ConfigError, match=r"needs either privacy\.noise .* or privacy\.epsilon"):
            Budget.of("central", options, **common)  # type: ignore[arg-type]
    assert Budget.of("none", {}, **common) is None  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a round has a single client"):
        Budget.of("central", {"noise": 1.0}, **{**common, "sampler": Poisson(2)})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot be kept with any noise"):
        Budget.of("central", {"epsilon": 1.0}, **{**common, "sampler": Poisson(2)})  # type: ignore[arg-type]
