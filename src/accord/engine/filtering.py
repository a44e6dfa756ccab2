"""From a configuration to the filters of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from accord.core.algorithm import Algorithm, Setup
from accord.core.disclosure import Disclosure, declared
from accord.core.persample import PerSample
from accord.core.types import Facts
from accord.errors import ConfigError
from accord.filters import NO_FILTERS, Budget, Compression, Filters, Sample

if TYPE_CHECKING:
    from accord.config import RunConfig


def budget_of(config: RunConfig, facts: Facts, setup: Setup, *, steady: bool = True) -> Budget | None:
    """Its noise and what it spends; None where nothing is protected. `steady`: clients are always there to be asked."""
    if config.privacy.name == "none":
        return None
    if config.local.class_weights == "balanced":
        raise ConfigError(
            "local.class_weights = 'balanced' counts the labels of all clients, and privacy does not cover that: give "
            "a number per class, or set it to none"
        )
    if config.clients.sampler == "poisson" and config.clients.minimum > 1:
        raise ConfigError(
            "clients.minimum above 1 skips rounds by how many were drawn, which clients.sampler = 'poisson' must not "
            "show under privacy: set clients.minimum to 1"
        )
    return Budget.of(
        config.privacy.name,
        config.privacy.options,
        sampler=setup.sampler,
        sizes=[int(facts.sizes[client]) for client in facts.members],
        plan=setup.plan,
        rounds=config.rounds,
        steady=steady and config.pace.presence == "always",
    )


def privately(setup: Setup, budget: Budget | None) -> Setup:
    """With DP-SGD and batches drawn sample by sample, where single samples are protected."""
    if budget is None or not isinstance(budget.protection, Sample):
        return setup
    private = PerSample(budget.protection.clip, budget.protection.noise)
    return replace(setup, private=private, plan=replace(setup.plan, last_batch="pad", poisson=True))


def filters_of(config: RunConfig, budget: Budget | None, algorithm: Algorithm) -> Filters:
    """What the configuration asks for, on the answers of every task that sends updates."""
    compression = Compression(config.compress.keep, config.compress.bits)
    if budget is None and not compression.on:
        return NO_FILTERS
    updates = {
        name: frozenset(tree for tree, kind in declared(task).items() if kind is Disclosure.UPDATE)
        for name, task in algorithm.tasks.items()
    }
    training = {
        name: trees for name, trees in updates.items() if trees or name == "train"
    }  # one that says nothing, too
    return Filters(budget, compression, training)
