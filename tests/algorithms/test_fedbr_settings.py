"""FedBR's settings: what is refused, and what a file can hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.algorithms.fedbr import fedbr
from accord.algorithms.mixup import Mixup
from accord.algorithms.scaffold import ControlVariates
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.errors import ConfigError
from accord.settings import settings_of
from support.federation import tiny_data, tiny_model, tiny_setup

# settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lam": -1.0}, "lam"),
        ({"mu": float("nan")}, "mu"),
        ({"tau": 0.0}, "tau"),
        ({"mixed": -1}, "mixed"),
        ({"mixed": 1.5}, "mixed"),
        ({"means": 1}, "means"),
        ({"size": -4}, "size"),
        ({"extra": ("mixpu",)}, "Did you mean 'mixup'"),
        ({"parts": ("mixup",)}, "extra"),
        ({"extra": ("mixup",), "parts": (Mixup(),)}, "listed twice"),
        ({"fedcm_steps": "both"}, "wants fedcm among extra"),
        ({"fedcm_steps": "both", "extra": ("fedcm",), "max_step": False}, "wants fedcm among extra"),
        ({"fedcm_steps": "both", "extra": ("fedcm",), "mu": 0.0}, "wants fedcm among extra"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        fedbr(tiny_setup(tiny_data(), tiny_model()), **options)


def test_full_batches_need_a_size() -> None:
    setup = tiny_setup(tiny_data(), tiny_model(), plan=Plan(batch_size=0))
    with pytest.raises(ConfigError, match=r"algorithm\.size"):
        fedbr(setup)
    assert fedbr(setup, size=5).pseudo.size == 5  # type: ignore[attr-defined]


def test_settings_are_those_a_file_can_hold() -> None:
    known = settings_of(fedbr)
    assert not {"parts", "proxy", "setup"} & set(known)
    assert known["tau"].default == 0.5
    assert all(setting.doc for setting in known.values())


def test_features_are_counted_where_they_are_projected() -> None:
    model = tiny_model()
    model.num_features = 0
    setup = tiny_setup(tiny_data(), model)
    with pytest.raises(ConfigError, match="projects the features"):
        fedbr(setup)
    assert fedbr(setup, projector=False)
    assert fedbr(setup, mu=0.0)


def test_sums_are_enough_where_clients_contribute_nothing() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    assert "pseudo-samples" in fedbr(setup).needs_each  # type: ignore[attr-defined]
    assert fedbr(setup, proxy=torch.rand(3, 1, 8, 8)).needs_each == ""  # type: ignore[attr-defined]


def test_parts_by_name_and_from_python_must_go_together() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    with pytest.raises(ConfigError, match="ControlVariates and ClientMomentum do not go together"):
        fedbr(setup, parts=(ControlVariates(SGD(), 4),), extra=("fedcm",))
