"""Whole runs with filters: the same bits wherever clients run, after a stop too; what is written; what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import accord
from accord.config import RunConfig, config_hash, from_dict
from accord.core.methods import ALGORITHMS
from accord.engine.federation import Federation
from accord.engine.run import resume, run
from accord.engine.suitability import UnsuitableError
from accord.errors import ConfigError
from accord.observe import Observer

SMALL: dict[str, Any] = {
    "data": {"limit": 160},
    "partition": {"clients": 5},
    "model": {"name": "mlp", "hidden": [6]},
    "clients": {"fraction": 0.6},
    "rounds": 3,
    "executor": "sequential",
    "device": "cpu",
}
CENTRAL: dict[str, Any] = {"privacy": {"name": "central", "noise": 0.05}}
FILTERS: dict[str, dict[str, Any]] = {
    "local": {"privacy": {"name": "local", "noise": 0.02}},
    "sample": {"privacy": {"name": "sample", "noise": 0.7}},
    "thin": {"compress": {"keep": 0.05, "bits": 8}},
    "all": {**CENTRAL, "compress": {"keep": 0.3, "bits": 8}},
}


def config(tmp_path: Path, name: str, **more: Any) -> RunConfig:
    return from_dict({**SMALL, **more, "out": str(tmp_path), "name": name})


class Stop(Observer):
    """Ctrl-C after a round."""

    def round_ended(self, round: int, record: Any) -> None:
        if round == 2:
            raise KeyboardInterrupt


def state_of(folder: Path) -> dict[str, bytes]:
    last = max((folder / "checkpoint").glob("round-*"))
    kept = {path.name: path.read_bytes() for path in (folder / "checkpoint" / "clients").iterdir()}
    return {"server": (last / "server.safetensors").read_bytes(), **kept}


@pytest.mark.parametrize("which", FILTERS)
@pytest.mark.parametrize("algorithm", ["scaffold"])
def test_the_same_bits_after_a_stop_and_in_processes(tmp_path: Path, which: str, algorithm: str) -> None:
    filters = {**FILTERS[which], "algorithm": {"name": algorithm}}
    whole = run(config(tmp_path, "whole", **filters))
    with pytest.raises(KeyboardInterrupt):
        run(config(tmp_path, "stopped", **filters), observers=[Stop()])
    stopped = resume(tmp_path / "stopped")
    apart = run(config(tmp_path, "apart", **filters, **{"executor": "processes", "workers": 2}))
    for other in (stopped, apart):
        assert (other.folder / "metrics.jsonl").read_bytes() == (whole.folder / "metrics.jsonl").read_bytes()
        assert state_of(other.folder) == state_of(whole.folder)
    if "compress" in filters:
        kept = [name for name in state_of(whole.folder) if name != "server"]
        assert kept
        plain = 2 * sum(t.numel() * 4 for t in whole.model.parameters()) * 9  # type: ignore[union-attr]
        assert whole.summary["bytes_up"] < plain


def test_epsilon_is_in_every_evaluated_round_and_in_the_summary(tmp_path: Path) -> None:
    asked = {"name": "central", "epsilon": 20.0, "delta": 1e-4}
    done = run(config(tmp_path, "a", privacy=asked, evaluate={"every": 2}))
    lines = [json.loads(line) for line in (done.folder / "metrics.jsonl").read_text().splitlines()]
    assert ["epsilon" in line for line in lines] == [False, True, True]
    assert 0 < lines[1]["epsilon"] < lines[2]["epsilon"] <= 20.0
    assert all(line["loss"] is None for line in lines)  # a mean of losses has no noise
    assert done.summary["epsilon"] == lines[2]["epsilon"] > 19.9
    facts = done.summary["privacy"]
    assert facts["name"] == "central"
    assert facts["protects"] == "client"
    assert facts["delta"] == 1e-4
    assert facts["noise"] > 0


def test_filters_that_do_nothing_change_nothing(tmp_path: Path) -> None:
    plain, same = from_dict(SMALL), from_dict({**SMALL, "privacy": {"name": "none"}, "compress": {"keep": 1.0}})
    assert config_hash(plain) == config_hash(same)
    for which in FILTERS.values():
        assert config_hash(from_dict({**SMALL, **which})) != config_hash(plain)
    assert "epsilon" not in run(config(tmp_path, "a")).summary


def test_noise_is_that_of_fedavg_by_hand(tmp_path: Path) -> None:
    """With everyone asked, nothing to clip and hardly any noise, central privacy is FedAvg with uniform weights."""
    everyone = {"clients": {"fraction": 1.0}, "algorithm": {"name": "fedavg", "weight": "uniform"}}
    quiet = {"name": "central", "clip": 1e6, "noise": 1e-12}
    a = run(config(tmp_path, "a", **everyone))
    b = run(config(tmp_path, "b", **everyone, privacy={**quiet, "delta": 0.5}))
    assert a.model is not None
    assert b.model is not None
    for mine, other in zip(a.model.parameters(), b.model.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-5)
    assert math.isfinite(b.summary["epsilon"])


REFUSED = [
    ("krum", "central", r"krum does not fit privacy.name = 'central': the server compares the clients' models"),
    ("median", "central", "median of the clients' values"),
    ("fednova", "central", "reads more of the answers than their mean"),
    ("qffl", "central", "weighs each client by its loss"),
    ("fedbuff", "central", "does not fit"),
    ("fedmix", "local", r"asks its clients for more than their training \(task means\)"),
    ("fedbr", "sample", "task contribute"),
    ("mixup", "sample", r"its part Mixup works on whole batches"),
    ("moon", "sample", r"reads its client's data \(job.data.x\) outside of its steps"),
    ("ditto", "sample", "its part HeldNear works on whole batches"),
    ("fedrep", "sample", "take other steps than"),
    ("centralized", "central", "gathers all data in one place"),
]


@pytest.mark.parametrize(("algorithm", "privacy", "why"), REFUSED)
def test_methods_that_do_not_fit_are_refused_by_name(algorithm: str, privacy: str, why: str) -> None:
    asked = from_dict({**SMALL, "algorithm": {"name": algorithm}, "privacy": {"name": privacy, "noise": 1.0}})
    with pytest.raises(UnsuitableError, match=why):
        Federation.build(asked)


@pytest.mark.parametrize("privacy", ["central", "local", "sample"])
def test_batch_norm_is_refused(privacy: str) -> None:
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(784), torch.nn.Linear(784, 10))
    network = accord.models.adapt(layers, head="2")
    with pytest.raises(UnsuitableError, match="group norm"):
        Federation.build(from_dict({**SMALL, "privacy": {"name": privacy, "noise": 1.0}}), model=network)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"privacy": {"name": "central"}}, "needs either privacy.noise"),
        ({"privacy": {"name": "central", "noise": 1.0}, "local": {"class_weights": "balanced"}}, "counts the labels"),
        (
            {"privacy": {"name": "central", "noise": 1.0}, "clients": {"sampler": "poisson", "minimum": 2}},
            "minimum to 1",
        ),
    ],
)
def test_settings_that_do_not_go_together(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Federation.build(from_dict({**SMALL, **given}))


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown protection"):
        from_dict({"privacy": {"name": "global"}})
    with pytest.raises(ConfigError, match=r"privacy\.noise"):
        from_dict({"privacy": {"name": "none", "noise": 1.0}})
    with pytest.raises(ConfigError, match=r"compress\.bits"):
        from_dict({"compress": {"bits": 4}})


def test_own_models_stay_with_the_clients(tmp_path: Path) -> None:
    done = run(config(tmp_path, "a", algorithm={"name": "fedper"}, privacy={"name": "local", "noise": 0.1}))
    assert not (done.folder / "model" / "clients").exists()
    assert done.summary["personal_accuracy"]["mean"] >= 0


def test_a_method_without_its_own_name_in_a_list_is_tried_too(tmp_path: Path) -> None:
    """Every method is either carried out or refused with its name: none passes by oversight."""
    outcomes = {}
    for name in ("fedavg", "feddyn", "fedcm", "fedper", "local"):
        try:
            Federation.build(from_dict({**SMALL, "algorithm": {"name": name}, **CENTRAL}))
            outcomes[name] = "yes"
        except UnsuitableError as error:
            outcomes[name] = "no" if name in str(error) else "no name"
    assert outcomes == {"fedavg": "yes", "feddyn": "yes", "fedcm": "no", "fedper": "yes", "local": "yes"}
    steps = {**SMALL, "local": {"steps": 2}, "algorithm": {"name": "fedcm"}, **CENTRAL}
    Federation.build(from_dict(steps))  # where all take as many steps, its rule is a mean
    assert set(outcomes) <= set(ALGORITHMS)
    assert accord.__version__
