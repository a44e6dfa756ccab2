"""How clients differ: factors by which one takes longer than another, drawn once for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from accord.settings import Registry

Numbers = np.ndarray[Any, np.dtype[np.float64]]
Draw = Callable[[np.random.Generator, int, float], Numbers]  # so many factors, and how far they lie apart

DISTRIBUTIONS: Registry[Draw] = Registry("distribution")


@DISTRIBUTIONS.add("constant")
def constant(rng: np.random.Generator, count: int, spread: float) -> Numbers:
    """Everybody alike: 1."""
    return np.ones(count)


@DISTRIBUTIONS.add("uniform")
def uniform(rng: np.random.Generator, count: int, spread: float) -> Numbers:
    """Evenly between 1 and 1 + spread."""
    return 1 + spread * rng.random(count)


@DISTRIBUTIONS.add("lognormal")
def lognormal(rng: np.random.Generator, count: int, spread: float) -> Numbers:
    """exp(spread z), z normal: the median is 1, and as many are faster as are slower."""
    return np.exp(spread * rng.standard_normal(count))


@DISTRIBUTIONS.add("halfnormal")
def halfnormal(rng: np.random.Generator, count: int, spread: float) -> Numbers:
    """1 + spread |z|, z normal: nobody is faster than 1."""
    return 1 + spread * np.abs(rng.standard_normal(count))


@DISTRIBUTIONS.add("pareto")
def pareto(rng: np.random.Generator, count: int, spread: float) -> Numbers:
    """u^(-spread), u uniform: a heavy tail of index 1 / spread, from 1 on; a few clients are very slow."""
    return (1 - rng.random(count)) ** -spread
