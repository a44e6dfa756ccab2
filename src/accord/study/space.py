"""Where the search looks for settings, and what it draws before Optuna knows enough to propose (`optimiser`).

`local.lr` and the algorithm's own settings are drawn from the ranges written beside them (`accord.settings.Search`);
what is given among the sets, or by a variant, is not searched. Draws are addressed by setting and trial: more trials,
or another setting, leave the others as they were, and all algorithms try the same learning rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from accord.config import LocalConfig
from accord.core.keys import Key
from accord.settings import Setting, settings_of
from accord.study.plan import Comparison
from accord.study.variants import Variant

KEY = Key(0)  # the same draws in every comparison


def search_space(comparison: Comparison, variant: Variant) -> dict[str, Setting]:
    """What is searched, by key."""
    fixed = comparison.fixed | set(variant.keys)
    everyone = {f"local.{name}": setting for name, setting in settings_of(LocalConfig).items()}
    of_method = {f"algorithm.{name}": setting for name, setting in comparison.settings[variant.algorithm].items()}
    return {
        key: setting
        for key, setting in {**everyone, **of_method}.items()
        if setting.search is not None and key not in fixed
    }


def draw_settings(space: Mapping[str, Setting], algorithm: str, trial: int, attempt: int) -> dict[str, object]:
    """One point of the space; a further `attempt` is another one."""
    return {key: draw(setting, KEY.at(_stream(algorithm, key), trial, attempt)) for key, setting in space.items()}


def draw(setting: Setting, rng: np.random.Generator) -> object:
    """One value, numbers from an interval with three digits."""
    search = setting.search
    assert search is not None
    if search.choices:
        return search.choices[int(rng.integers(len(search.choices)))]
    assert search.low is not None
    assert search.high is not None
    if search.log:
        number = math.exp(rng.uniform(math.log(search.low), math.log(search.high)))
    else:
        number = rng.uniform(search.low, search.high)
    return as_written(setting, number)


def as_written(setting: Setting, number: float) -> float:
    """A number from an interval: whole, or with three digits."""
    return round(number) if setting.type is int else float(f"{number:.3g}")


def _stream(algorithm: str, key: str) -> str:
    """What all methods have (the learning rate) takes the same values for all, so that none has better luck with it."""
    return f"tune.{algorithm}.{key}" if key.startswith("algorithm.") else f"tune.{key}"
