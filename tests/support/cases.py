"""Every registered method, in its usual form and with settings that open its other paths, as tiny runs."""

from __future__ import annotations

from typing import Any

import pytest

from accord.core.methods import ALGORITHMS
from support.federation import Given, TinyRun, tiny_model

# Methods that want something else than a small perceptron, and settings that open a method's other paths.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {"fedfusion": ("mcmahan_cnn", {}), "fedbn": ("fedbr_cnn", {})}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "apple": [{"decay": "cosine", "horizon": 1.0}],
    "fedbr": [
        {"mixed": 1, "every_round": False, "size": 5},
        {"balanced": True, "max_step": False, "extra": ("feddecorr",)},
    ],
    "fedfusion": [{"operator": "multi", "evaluate": "same"}, {"operator": "single", "lambda0": 0.3}],
    "fedmmd": [{"kernel": "median", "on": "features"}],
    "fedmtl": [{"form": "mean"}],
    "fedrane": [
        {"graph": "ridge", "top_k": 2, "hops": 2, "evaluation": "support", "power": "uniform"},
        {"lra": False, "scale": "sum", "frozen_head": True},
    ],
    "fedreptile": [{"decay": "linear"}],
    "fedufo": [
        {"disc_home": "client", "disc_train": "batch", "start": "prior", "terms": "uad"},
        {"disc_home": "fresh", "disc_classes": "group", "disc_train": "batch", "terms": "uad+cgl"},
        {"terms": "all", "performance": "fresh", "stage_one_rounds": 0, "cgr_target": "logits"},
    ],
    "fedmeta": [{"uga": True}],
    "krum": [{"keep": 2, "hostile": 0.0}],
    "moon": [{"projection": 0}],
    "scaffold": [{"server_lr": 0.5}],
    "spherefed": [{"calibrate": "never"}],
}
CASES = [
    pytest.param(name, settings, id=f"{name}-{number}" if number else name)
    for name in ALGORITHMS
    for number, settings in enumerate([{}, *VARIANTS.get(name, [])])
]
COHORTS = Given([0, 2], [1, 3], [0, 1, 2])


def start(name: str, settings: dict[str, Any], **options: Any) -> TinyRun:
    model_name, model_settings = MODELS.get(name, ("mlp", {}))
    options.setdefault("sampler", COHORTS)
    options.setdefault("model", tiny_model(model_name, **model_settings))
    return TinyRun(name, settings, **options)
