"""A run's privacy budget: which noise it adds, and what it has spent after so many rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accord.core.algorithm import Sampler
from accord.core.plan import Plan
from accord.errors import ConfigError
from accord.filters import accounting
from accord.filters.accounting import Draw
from accord.filters.protections import PROTECTIONS, Central, Local, Protection


@dataclass(frozen=True)
class Budget:
    """A protection whose noise is known, and how much of its budget so many rounds take."""

    name: str
    protection: Protection
    draw: Draw
    work: tuple[tuple[float, int], ...]  # chance of a sample and steps in a round, of each kind of client

    @classmethod
    def of(
        cls,
        name: str,
        options: Mapping[str, Any],
        *,
        sampler: Sampler,
        sizes: Sequence[int],
        plan: Plan,
        rounds: int,
        steady: bool = True,
    ) -> Budget | None:
        """With the noise that was given, or that keeps to the epsilon that was; None where nothing is protected.

        `sizes` are the samples of every client that may be asked; `steady`: all of them can be asked in every round.
        Where some may be away the others are drawn more often than it seems, and nothing is gained by drawing.
        """
        protection = PROTECTIONS[name](**options)
        if not isinstance(protection, Protection):
            return None
        if bool(protection.noise) == bool(protection.epsilon):
            both = "both are" if protection.noise else "neither is"
            raise ConfigError(
                f"privacy.name = {name!r} needs either privacy.noise (a multiplier, such as 1) or privacy.epsilon (a "
                f"budget, such as 8), and {both} given: set one of them above 0"
            )
        budget = cls(name, protection, Draw.of(sampler, len(sizes), steady), _work(plan, sizes))
        if protection.epsilon:
            noise = accounting.noise_for(protection.epsilon, lambda noise: budget._with(noise).spent(rounds))
            return budget._with(noise)
        if not math.isfinite(budget.spent(rounds)):
            raise ConfigError(
                f"privacy.delta = {protection.delta:g} is less than the chance that a round has a single client in "
                "it, in all of them (clients.sampler = 'poisson'): ask more clients in a round, or raise privacy.delta"
            )
        return budget

    def _with(self, noise: float) -> Budget:
        return replace(self, protection=replace(self.protection, noise=noise))

    def spent(self, rounds: int) -> float:
        """Epsilon at delta, after so many rounds."""
        given, draw = self.protection, self.draw
        if not rounds:
            return 0.0
        if isinstance(given, Central):
            return accounting.central(given.noise, draw, rounds, given.delta)
        if isinstance(given, Local):
            return accounting.local(given.noise, draw, rounds, given.delta)
        return accounting.sample(given.noise, self.work, draw.turns(rounds), given.delta)

    @property
    def deviation(self) -> float:
        """Of the noise on a sum whose parts are clipped."""
        return self.protection.noise * self.protection.clip

    @property
    def denominator(self) -> float:
        """What a sum of clients' changes is divided by, where it is not their number: the mean one."""
        return float(self.draw.cohort) if self.draw.kind == "poisson" else 0.0

    def facts(self) -> dict[str, Any]:
        """For a summary."""
        given = self.protection
        return {
            "name": self.name,
            "protects": given.unit,
            "clip": given.clip,
            "noise": given.noise,
            "delta": given.delta,
        }

    def words(self) -> str:
        """For whoever wants to know what a run promises."""
        given = self.protection
        return (
            f"{self.name} (protects one {given.unit}): clip {given.clip:g}, noise multiplier {given.noise:g}, delta "
            f"{given.delta:g}"
        )


def _work(plan: Plan, sizes: Sequence[int]) -> tuple[tuple[float, int], ...]:
    """For every number of steps that clients take, the largest chance a sample has to be in one."""
    found: dict[int, float] = {}
    for size in set(sizes):
        if size > 0:
            batch = min(plan.batch_size or size, size)
            steps = plan.steps or plan.epochs * math.ceil(size / batch)
            found[steps] = max(found.get(steps, 0.0), batch / size)
    return tuple(sorted((chance, steps) for steps, chance in found.items()))
