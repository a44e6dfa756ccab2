"""Figures that need trained networks, from the folders of tiny runs."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import accord
from accord.config import config_hash, load_config
from accord.papers.experiment import Experiment
from accord.papers.networks import answers, draw_networks, trained
from accord.papers.wanted import wanted
from accord.wire.writing import digest
from papers.conftest import TINY, tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clients with five digits each, one round of real training."""
    folder = tmp_path_factory.mktemp("runs")
    one = next(iter(wanted(small(), (0,), "full", ["fedavg"], ["device=cpu", "executor=sequential"])))
    accord.run(one.slot(folder / "full").config)
    return folder


def small() -> Experiment:
    made = tiny(1)
    config = {
        **TINY,
        "rounds": 1,
        "data": {"name": "mnist5k", "limit": 400},
        "partition": {"name": "label_split", "groups": "halves", "clients": 2},
        "clients": {"count": 2},
        "local": {"steps": 20, "batch_size": 16, "lr": 0.1},
    }
    place = replace(made.places[0], setting=replace(made.places[0].setting, config=config))
    return replace(made, columns=[replace(column, place=place) for column in made.columns])


def run_folder(runs: Path) -> Path:
    return next(path.parent for path in runs.rglob("config.toml"))


def test_the_folder_of_a_compiled_run_on_a_gpu_is_read_on_a_cpu(runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(run_folder(runs), tmp_path / "run")
    path = folder / "config.toml"
    text = path.read_text(encoding="utf-8")
    for name, value in (("device", '"cuda"'), ("executor", '"batched"'), ("precision", '"tf32"'), ("compile", "true")):
        text, found = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
        assert found == 1
    path.write_text(text, encoding="utf-8")
    (kept,) = folder.rglob("run.json")  # as that run would have written it
    record = json.loads(kept.read_text()) | {"config_hash": config_hash(load_config(path))}
    record["digest"] = digest({name: value for name, value in record.items() if name != "digest"})
    kept.write_text(json.dumps(record))
    with trained(folder) as run:
        assert (run.federation.device.type, run.round) == ("cpu", 1)


def test_local_models_answer_the_digits_they_saw(runs: Path) -> None:
    shares = answers(run_folder(runs))
    assert sorted(shares) == [0, 1]
    assert shares[0].sum() == pytest.approx(1)
    assert shares[0][:5].sum() > 0.9  # client 0 holds 0 to 4, client 1 the others
    assert shares[1][5:].sum() > 0.9


def test_features_are_those_of_the_newest_state(runs: Path) -> None:
    with trained(run_folder(runs)) as run:
        assert run.round == 1
        x, labels = run.test_samples()
        assert len(x) == len(labels) == 1000
        assert len(np.unique(labels)) == 10


@pytest.mark.parametrize("kind", ["outputs", pytest.param("tsne", marks=pytest.mark.slow)])
def test_figures_are_drawn_from_the_folders(runs: Path, tmp_path: Path, kind: str) -> None:
    assert draw_networks(small(), kind, tmp_path / "nowhere", tmp_path) is None
    made = draw_networks(small(), kind, runs, tmp_path)
    assert made is not None
    assert 3000 < (tmp_path / f"tiny-{kind}.svg").stat().st_size < 200_000
