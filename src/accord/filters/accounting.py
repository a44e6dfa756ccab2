"""What a run has spent: epsilon after so many rounds, and the noise that keeps to a budget. dp-accounting reckons.

z is the noise multiplier, K clients of whom m are asked, T rounds. Every number is an upper bound.

central, clients.sampler =
    poisson    each client by itself, with chance q = m / K: T Poisson-sampled Gaussians of z (RDP)
    uniform    m of K, without replacement: the smaller of two bounds, T Gaussians of z, as if all took part, and T
               Gaussians of z / 2 sampled without replacement (RDP), as an exchange changes the sum by up to 2 clip
    cyclic     in turn: ceil(T m / K) Gaussians of z, as often as a client's turn comes
    weighted   by size: T Gaussians of z
local          the server sees who answers, so nothing is gained by drawing: a Gaussian of z / 2, as answers of any two
               clients differ by up to 2 clip, for every answer of a client: T, or as often as its turn comes
sample         each sample by itself, with chance q = batch / n of its client: a Poisson-sampled Gaussian of z (RDP) for
               every step in all rounds its client may take part in; the client with the largest epsilon counts

Gaussians alone are counted exactly (Balle and Wang, ICML 2018): T of them are one of z / sqrt(T).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from accord.core.algorithm import Sampler
from accord.errors import ConfigError
from accord.sampling import Cyclic, Everyone, Poisson, Uniform

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512)  # of RDP
FEW_ORDERS = (*range(2, 17), 20, 24, 32, 48, 64)  # without replacement an order takes its square to reckon
LEAST_NOISE, MOST_NOISE = 0.01, 1e6
Kind = Literal["poisson", "uniform", "in turn", "any"]


def library() -> Any:
    """dp-accounting; a ConfigError says how to get it."""
    try:
        import dp_accounting
    except ImportError as error:
        raise ConfigError(
            f"privacy needs the library dp-accounting, and it cannot be imported ({error}): "
            "pip install 'accord-fl[privacy]', or set privacy.name to none"
        ) from error
    return dp_accounting


@dataclass(frozen=True)
class Draw:
    """How a round's clients are chosen, as far as accounting goes."""

    kind: Kind
    clients: int
    cohort: int

    @classmethod
    def of(cls, sampler: Sampler, clients: int, steady: bool = True) -> Draw:
        """What may be assumed of a sampler; of one whose clients are away at times (not `steady`), nothing."""
        kinds: dict[type, Kind] = {Poisson: "poisson", Uniform: "uniform", Everyone: "uniform", Cyclic: "in turn"}
        return cls(kinds.get(type(sampler), "any") if steady else "any", clients, max(sampler.size(clients), 1))

    @property
    def share(self) -> float:
        """q, a client's chance to be asked."""
        return self.cohort / self.clients

    def turns(self, rounds: int) -> int:
        """How often one client is asked, at most."""
        return math.ceil(rounds * self.cohort / self.clients) if self.kind == "in turn" else rounds


def gaussian(noise: float, times: int, delta: float) -> float:
    """Exactly, for `times` Gaussians of sensitivity 1 and deviation `noise`; of next to no noise a bound (zCDP)."""
    if noise <= 0 or not times:
        return math.inf if noise <= 0 else 0.0
    width = noise / math.sqrt(times)
    if width < LEAST_NOISE:
        rho = 1 / (2 * width**2)
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return float(library().get_epsilon_gaussian(width, delta))


@lru_cache(maxsize=1024)
def _curve(noise: float, chance: float) -> Any:
    """Renyi divergences of one Poisson-sampled Gaussian: they add up, so that any number of them is one product."""
    dp = library()
    return _divergences(dp.rdp.RdpAccountant(ORDERS), dp.PoissonSampledDpEvent(chance, dp.GaussianDpEvent(noise)))


@lru_cache(maxsize=256)
def _curve_of_few(noise: float, clients: int, cohort: int) -> Any:
    """Of one Gaussian over a cohort of fixed size."""
    dp = library()
    event = dp.SampledWithoutReplacementDpEvent(clients, cohort, dp.GaussianDpEvent(noise))
    return _divergences(dp.rdp.RdpAccountant(FEW_ORDERS, dp.NeighboringRelation.REPLACE_ONE), event)


def _divergences(accountant: Any, event: Any) -> Any:
    """What the accountant holds after one event, order by order."""
    return accountant.compose(event)._rdp


def _converted(orders: Sequence[int], divergences: Any, delta: float) -> float:
    return float(library().rdp.compute_epsilon(orders, divergences, delta)[0])


def sampled(noise: float, chance: float, times: int, delta: float) -> float:
    """Of Poisson-sampled Gaussians, by Renyi divergences."""
    if delta <= 0 or noise <= 0:
        return math.inf
    if chance >= 1 or not times or noise < LEAST_NOISE:
        return gaussian(noise, times, delta)
    return _converted(ORDERS, times * _curve(noise, chance), delta)


def central(noise: float, draw: Draw, rounds: int, delta: float) -> float:
    """A client's epsilon where the server adds the noise."""
    if noise <= 0:
        return math.inf
    if draw.kind == "poisson":
        # A round nobody is drawn into is skipped, which shows if a client would have been there alone.
        alone = rounds * draw.share * (1 - draw.share) ** (draw.clients - 1)
        return sampled(noise, draw.share, rounds, delta - alone)
    plain = gaussian(noise, draw.turns(rounds), delta)
    if draw.kind != "uniform" or draw.share >= 1 or not rounds or noise < LEAST_NOISE:
        return plain
    few = _converted(FEW_ORDERS, rounds * _curve_of_few(noise / 2, draw.clients, draw.cohort), delta)
    return min(plain, few)


def local(noise: float, draw: Draw, rounds: int, delta: float) -> float:
    """A client's epsilon where it adds the noise itself."""
    return gaussian(noise / 2, draw.turns(rounds), delta)


def sample(noise: float, work: Sequence[tuple[float, int]], turns: int, delta: float) -> float:
    """A sample's epsilon, at the client where it is largest; `work`: each client's chance and steps in a round."""
    if noise <= 0:
        return math.inf
    return max((sampled(noise, chance, steps * turns, delta) for chance, steps in work), default=0.0)


def noise_for(epsilon: float, spent: Callable[[float], float]) -> float:
    """The least noise multiplier that keeps to a budget, rounded up to four digits."""
    high = 1.0
    while spent(high) > epsilon:
        high *= 2
        if high > MOST_NOISE:
            raise ConfigError(
                f"privacy.epsilon = {epsilon:g} cannot be kept with any noise: raise it or privacy.delta, or take "
                "fewer rounds; where clients.sampler = 'poisson', ask more clients in a round"
            )
    low = high / 2 if high > 1 else 0.0
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    digits = 3 - math.floor(math.log10(high))
    return math.ceil(high * 10.0**digits) / 10.0**digits
