"""Whole runs: the folder, resuming after kill -9, own data and models, what is refused and how."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import accord
from accord.config import RunConfig, load_config
from accord.data.federated import FederatedData, Groups, Pool
from accord.errors import CheckpointError, ConfigError, DataError, DivergedError, RunError

SMALL = [
    "rounds=4",
    "data.limit=300",
    "partition.clients=6",
    "clients.count=3",
    "partition.alpha=1.0",
    "model.name=mlp",
    "model.hidden=[16]",
    "executor=sequential",
    "targets=[0.2]",
]


def config(out: Path, *sets: str) -> RunConfig:
    return load_config(None, [*SMALL, f"out={out}", *sets])


def contents(folder: Path) -> dict[str, bytes]:
    """Everything a run leaves that does not depend on the clock."""
    wanted = [folder / "metrics.jsonl", *sorted((folder / "checkpoint").rglob("*.safetensors"))]
    return {str(path.relative_to(folder)): path.read_bytes() for path in wanted}


def test_the_folder_and_the_outcome(tmp_path: Path) -> None:
    outcome = accord.run(
        config(
            tmp_path,
            "evaluate.drift=true",
            "evaluate.personal=true",
            "evaluate.local_on_global=true",
            "evaluate.map=true",
            "partition.validation=0.2",
            "partition.unseen=1",
            "evaluate.unseen_epochs=2",
        )
    )
    assert outcome.folder == tmp_path / "fedavg-mnist5k-s0"
    summary = json.loads((outcome.folder / "summary.json").read_text())
    assert summary == outcome.summary
    assert {
        "algorithm", "seed", "rounds", "accuracy", "best_accuracy", "top5_accuracy", "client_accuracy", "rounds_to",
        "bytes_up", "bytes_down", "seconds", "versions", "personal_accuracy", "validation_accuracy", "unseen",
    } <= summary.keys()  # fmt: skip
    lines = [json.loads(line) for line in (outcome.folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == outcome.metrics
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    parameters = 784 * 16 + 16 + 16 * 10 + 10
    assert lines[0]["bytes_up"] == lines[0]["bytes_down"] == 3 * 4 * parameters
    assert -1 <= lines[0]["drift"]["lowest"] <= lines[0]["drift"]["mean"] <= 1
    assert len(summary["unseen"]["accuracy_after_epochs"]) == 3
    unseen = set(range(6)) - {k for line in lines for k in line["cohort"]}
    assert unseen, "the unseen client was never asked"
    assert outcome.model is not None
    x, y = accord.load_dataset("mnist5k").test.take(np.arange(1000))
    accuracy = (outcome.model(x).argmax(1) == y).double().mean().item()
    assert accuracy == pytest.approx(summary["accuracy"])


def test_config_toml_makes_the_same_run_again(tmp_path: Path) -> None:
    first = accord.run(config(tmp_path / "a", "algorithm.name=scaffold"))
    again = accord.run(load_config(first.folder / "config.toml", [f"out={tmp_path / 'b'}"]))
    assert contents(first.folder) == contents(again.folder)


@pytest.mark.parametrize("executor", ["sequential", "processes"])
def test_kill_minus_nine_then_resume_gives_the_same_bits(tmp_path: Path, executor: str) -> None:
    sets = ["algorithm.name=scaffold", f"executor={executor}", "workers=2", "rounds=12", "local.epochs=3"]
    whole = accord.run(config(tmp_path / "whole", *sets))
    words = [w for s in [*SMALL, *sets, f"out={tmp_path}", "name=cut"] for w in ("--set", s)]
    process = subprocess.Popen(
        [sys.executable, "-m", "accord", "run", "--quiet", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    cut = tmp_path / "cut"
    deadline = time.monotonic() + 120
    while not list((cut / "checkpoint").glob("round-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (cut / "summary.json").exists(), "the run was over before it could be stopped"
    resumed = accord.resume(cut)
    assert contents(resumed.folder) == contents(whole.folder)
    assert resumed.summary["accuracy"] == whole.summary["accuracy"]
    assert accord.resume(cut).summary["accuracy"] == whole.summary["accuracy"], "resuming a finished run is harmless"


def test_resume_before_the_first_checkpoint_starts_over(tmp_path: Path) -> None:
    whole = accord.run(config(tmp_path / "whole", "checkpoint.every=0"))
    cut = tmp_path / "cut"
    cut.mkdir()
    for name in ("config.toml", "identity.json"):
        (cut / name).write_text((whole.folder / name).read_text())
    (cut / "metrics.jsonl").write_text('{"round": 1, "acc')
    assert contents(accord.resume(cut).folder) == contents(whole.folder)


def test_memory_on_disk_changes_nothing(tmp_path: Path) -> None:
    a = accord.run(config(tmp_path / "a", "algorithm.name=scaffold"))
    b = accord.run(config(tmp_path / "b", "algorithm.name=scaffold", "checkpoint.memory_limit_mb=0"))
    assert contents(a.folder) == contents(b.folder)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.toml"):
        accord.resume(tmp_path)


def test_a_taken_name_is_refused(tmp_path: Path) -> None:
    accord.run(config(tmp_path, "name=mine", "rounds=1"))
    with pytest.raises(ConfigError, match="accord resume"):
        accord.run(config(tmp_path, "name=mine", "rounds=1"))


def test_an_output_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="--out"):
        accord.run(config(tmp_path / "file" / "runs"))


def test_diverging_training_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"round \d+ on client \d+.*local\.lr"):
        accord.run(config(tmp_path, "local.lr=1e30"))


def own_data(x: torch.Tensor, y: torch.Tensor, lists: list[Any], classes: int = 3) -> FederatedData:
    pool = Pool(x, y)
    groups = Groups.of(lists)
    return FederatedData("own", pool, pool, classes, groups, Groups.of([[]] * len(lists)), groups)


def test_own_arrays_own_module(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    x = (rng.normal(size=(90, 4)) + y[:, None]).astype(np.float32)
    dataset = accord.from_arrays(x, y, clients=[f"hospital-{i % 3}" for i in range(90)])
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    outcome = accord.run(
        load_config(None, ["partition.name=natural", "partition.clients=3", "rounds=12", f"out={tmp_path}"]),
        data=dataset,
        model=accord.adapt(net, head="2"),
    )
    assert outcome.summary["accuracy"] > 0.4
    again = accord.resume(outcome.folder, data=dataset, model=accord.adapt(net, head="2"))
    assert again.summary["accuracy"] == outcome.summary["accuracy"]


def test_hostile_data(tmp_path: Path) -> None:
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    halves: list[Any] = [range(15), range(15, 30)]
    settings = config(tmp_path, "clients.count=0", "clients.fraction=1.0")
    broken = x.clone()
    broken[7, 2] = float("nan")
    for data, words in (
        (own_data(broken, y, halves), "NaN.*position 7"),
        (own_data(x, y, halves, classes=2), r"labels.*allow 0 to 1"),
        (own_data(x, y - 1, halves), "are not class numbers, the first is -1"),
        (own_data(x, y, [[], []]), "no client has training data"),
    ):
        with pytest.raises(DataError, match=words):
            accord.run(settings, data=data)
    assert not list(tmp_path.iterdir()), "nothing is written before the data was checked"


def test_an_empty_client_and_a_client_of_one_class_do_no_harm(tmp_path: Path) -> None:
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    data = own_data(x, y, [range(10), [], range(0, 30, 3)])
    settings = config(tmp_path, "clients.count=0", "clients.fraction=1.0", "evaluate.personal=true")
    outcome = accord.run(settings, data=data)
    assert outcome.metrics[-1]["cohort"] == [0, 2]
    assert outcome.metrics[-1]["clients"]["skipped"] == 1


def test_cuda_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="no GPU"):
        accord.run(config(tmp_path, "device=cuda"))


def test_centralized_and_batch_norm(tmp_path: Path) -> None:
    outcome = accord.run(config(tmp_path, "algorithm.name=centralized", "rounds=2"))
    assert outcome.metrics[0]["cohort"] == [0]
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    with_norm = accord.run(config(tmp_path, "rounds=2"), model=accord.adapt(net, head="4"))
    assert with_norm.model is not None
    counters = [b for name, b in with_norm.model.named_buffers() if name.endswith("num_batches_tracked")]
    assert counters[0].dtype == torch.int64
    assert counters[0] > 0


def test_fedavg_beats_chance_and_local_training_on_skewed_digits(tmp_path: Path) -> None:
    sets = ["rounds=15", "partition.alpha=0.1", "evaluate.every=15"]
    both = {}
    for name in ("fedavg", "local"):
        extra = ["evaluate.local_on_global=true"] if name == "local" else []
        both[name] = accord.run(load_config(None, [*sets, *extra, f"algorithm.name={name}", f"out={tmp_path}"]))
    federated = both["fedavg"].summary["accuracy"]
    assert federated > 0.5
    assert both["local"].summary["accuracy"] is None
    assert federated > both["local"].metrics[-1]["local_on_global"]["mean"] + 0.2


def test_judged_on_validation_data_the_test_data_is_out_of_sight(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = torch.tensor(rng.integers(0, 3, 60))
    x = torch.tensor(rng.normal(size=(60, 4)) + np.asarray(y)[:, None], dtype=torch.float32)
    test = Pool(-5 * x, (y + 1) % 3)  # nothing like the rest: a number from it could not be right
    held: list[Any] = [range(0, 6), range(30, 36)]
    data = FederatedData(
        "own", Pool(x, y), test, 3, Groups.of([range(6, 30), range(36, 60)]), Groups.of(held), Groups.of([[0], [1]])
    )
    sets = ["clients.count=0", "clients.fraction=1.0", "evaluate.split=validation", "partition.validation=0.2"]
    outcome = accord.run(config(tmp_path, *sets, "evaluate.personal=true"), data=data)
    seen = [*held[0], *held[1]]
    assert outcome.model is not None
    right = (outcome.model(x[seen]).argmax(1) == y[seen]).double()
    assert outcome.summary["accuracy"] == pytest.approx(right.mean().item())
    assert outcome.summary["split"] == "validation"
    clients = outcome.metrics[-1]["clients"]
    assert sorted([clients["best"], clients["worst"]]) == pytest.approx(
        sorted([right[:6].mean().item(), right[6:].mean().item()])
    )
    assert outcome.summary["personal_accuracy"]["clients"] == 2
    with pytest.raises(ConfigError, match=r"partition\.validation above 0"):
        config(tmp_path, "evaluate.split=validation")
    with pytest.raises(DataError, match="no client has validation data"):
        accord.run(config(tmp_path, *sets), data=own_data(x, y, [range(30), range(30, 60)]))


def test_an_executor_that_cannot_be_had_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batched"):
        accord.run(config(tmp_path / "out", "executor=batched"))
    assert not (tmp_path / "out").exists()
