"""How runs end: finished ones stay as they are, diverged ones say so, beginnings that fail leave nothing behind."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import accord
from accord.cli.app import app
from accord.config import RunConfig, load_config
from accord.core.algorithm import Algorithm
from accord.engine import files
from accord.engine.checkpoint import Checkpoints
from accord.engine.folder import abandoned
from accord.errors import CheckpointError, ConfigError, DataError, DivergedError, RunError

SMALL = [
    "rounds=3", "data.limit=60", "partition.clients=3", "clients.count=2", "partition.name=iid", "model.name=mlp",
    "model.hidden=[4]", "executor=sequential", "evaluate.clients=false",
]  # fmt: skip


def config(out: Path, *sets: str) -> RunConfig:
    return load_config(None, [*SMALL, f"out={out}", "name=x", *sets])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def strict(path: Path) -> Any:
    """JSON as other programs read it."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{path.name} holds {word}")

    return [json.loads(text, parse_constant=refuse) for text in path.read_text().splitlines()]


@pytest.mark.parametrize("every", [0, 1])
def test_a_finished_run_is_returned_as_it_is(tmp_path: Path, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first = accord.run(config(tmp_path, f"checkpoint.every={every}", "algorithm.name=scaffold"))
    before = contents(first.folder)

    def nobody(*_: Any) -> None:
        raise AssertionError("nothing is to be done again")

    monkeypatch.setattr("accord.engine.federation.Federation.executor", nobody)
    again = accord.resume(first.folder)
    assert again.model is not None
    assert first.model is not None
    mine, theirs = first.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert (again.metrics, again.summary) == (first.metrics, first.summary)
    assert contents(first.folder) == before
    if not every:
        (first.folder / "model" / "model.json").unlink()
        with pytest.warns(UserWarning, match="returned as it is, without its network.*model.json"):
            assert accord.resume(first.folder).model is None


def test_a_finished_runs_log_ends_with_its_last_round(tmp_path: Path) -> None:
    first = accord.run(config(tmp_path))
    path = first.folder / "metrics.jsonl"
    sound = path.read_bytes()
    for tail in (b'{"round": 3, "accuracy": 1.0}\n', b'{"round": 4}\n', b"torn"):
        path.write_bytes(sound + tail)
        assert accord.resume(first.folder).metrics == first.metrics
        assert path.read_bytes() == sound


def test_a_damaged_last_checkpoint_of_a_finished_run_is_made_again(tmp_path: Path) -> None:
    first = accord.run(config(tmp_path))
    path = first.folder / "checkpoint" / "round-000003" / "server.safetensors"
    sound = path.read_bytes()
    path.write_bytes(sound[:-3] + b"abc")
    again = accord.resume(first.folder)
    assert path.read_bytes() == sound
    assert again.metrics == first.metrics
    assert again.model is not None


def test_a_damaged_summary_is_written_again_from_the_checkpoint(tmp_path: Path) -> None:
    first = accord.run(config(tmp_path))
    path = first.folder / "summary.json"
    for damaged in (path.read_text().replace('"accuracy": 0.', '"accuracy": 0.1'), "{", "", '{"accuracy": 1.0}'):
        path.write_text(damaged)
        assert accord.resume(first.folder).summary == first.summary
        assert json.loads(path.read_text()) == first.summary


def test_a_damaged_summary_without_a_checkpoint_costs_no_metrics(tmp_path: Path) -> None:
    first = accord.run(config(tmp_path, "checkpoint.every=0"))
    path, metrics = first.folder / "summary.json", first.folder / "metrics.jsonl"
    sound, lines = path.read_text(), metrics.read_bytes()
    path.write_text(sound[:-20])
    with pytest.raises(CheckpointError, match=r"came to its end, but.*Delete .*summary\.json to do all rounds again"):
        accord.resume(first.folder)
    assert metrics.read_bytes() == lines
    path.write_text(sound)
    metrics.write_bytes(lines.replace(b'"round": 2', b'"round": 7'))
    with pytest.raises(CheckpointError, match="no line of round 2"):
        accord.resume(first.folder)
    path.unlink()
    assert accord.resume(first.folder).metrics == first.metrics, "without a summary it is a stopped run"


def test_memory_on_disk_is_collected_without_checkpoints_too(tmp_path: Path) -> None:
    """Every client's memory goes to the disk at once; at no time is more there than one file per client."""
    most: list[int] = []

    class Count(accord.Observer):
        def round_ended(self, round: int, record: Any) -> None:
            most.append(len(list((tmp_path / "x" / "checkpoint" / "clients").glob("*"))))

    sets = ["checkpoint.every=0", "checkpoint.memory_limit_mb=0", "algorithm.name=scaffold", "rounds=6"]
    settings = config(tmp_path, *sets, "clients.count=3")
    outcome = accord.run(settings, observers=[Count()])
    assert max(most) > 0, "memory was on the disk"
    assert max(most) <= 3
    assert {p.name for p in outcome.folder.iterdir()} == {
        *(".lock", "config.toml", "division.json", "identity.json", "metrics.jsonl", "timings.jsonl"),
        *("summary.json", "model"),
    }


def test_a_resumed_run_without_checkpoints_keeps_those_it_has(tmp_path: Path) -> None:
    class Stop(accord.Observer):
        def round_ended(self, round: int, record: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accord.run(config(tmp_path, "algorithm.name=scaffold"), observers=[Stop()])
    folder = tmp_path / "x"
    text = (folder / "config.toml").read_text()
    before, after = text.split("[checkpoint]")
    (folder / "config.toml").write_text(f"{before}[checkpoint]{after.replace('every = 1', 'every = 0', 1)}")
    kept = contents(folder / "checkpoint")
    done = accord.resume(folder)
    assert contents(folder / "checkpoint") == kept
    again = accord.resume(folder)
    assert done.model is not None
    assert again.model is not None
    last, found = done.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(last[name], found[name]) for name in last), "the last round's, not the checkpoint's"
    assert again.metrics == done.metrics


class _Overflow:
    """The server's step of a method, made infinite in one round."""

    def __init__(self, method: Algorithm, at: int) -> None:
        self.method, self.at = method, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def round(self, state: Any, world: Any, exchange: Any) -> Any:
        new, replies = self.method.round(state, world, exchange)
        if world.round == self.at:
            leaf = sorted(new["model"])[0]
            new = {**new, "model": {**new["model"], leaf: new["model"][leaf] * torch.inf}}
        return new, replies


def test_a_server_step_that_overflows_ends_the_run_before_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import accord.engine.federation as module

    real = module.build_algorithm
    monkeypatch.setattr(module, "build_algorithm", lambda c, s: _Overflow(real(c, s), 1))
    with pytest.raises(DivergedError, match=r"diverged in round 2: .* not, in model \(\S+\)"):
        accord.run(config(tmp_path))
    assert [p.name for p in (tmp_path / "x" / "checkpoint").glob("round-*")] == ["round-000001"]
    assert [record["round"] for record in strict(tmp_path / "x" / "metrics.jsonl")] == [1]


def test_a_server_rate_that_overflows(tmp_path: Path) -> None:
    """The clients' answers are finite; only the server's step is not."""
    with pytest.raises(DivergedError, match="round 1: the clients' answers were finite"):
        accord.run(config(tmp_path, "algorithm.name=fedadam", "algorithm.server_lr=1e45"))


HUGE = ["local.lr=1e-30", "rounds=1"]


def diverging() -> tuple[Any, Any]:
    """Test samples so large that the loss on them is infinite; training samples are ordinary."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)).astype(np.float32)
    y = (np.arange(40) % 2).astype(np.int64)
    large = np.full((10, 4), 3e38, np.float32)
    data = accord.from_arrays(x, y, test=(large, np.arange(10) % 2))
    net = torch.nn.Sequential(torch.nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0] * 4, [-1.0] * 4]))
    return data, accord.adapt(net, head="0")


def test_an_end_that_is_no_number_is_written_as_null_and_is_a_failure(tmp_path: Path) -> None:
    data, model = diverging()
    settings = config(tmp_path, *HUGE, "partition.test=shared")
    with pytest.raises(DivergedError, match=r"last evaluation gave no finite numbers .*test_loss"):
        accord.run(settings, data=data, model=model)
    folder = tmp_path / "x"
    (line,) = strict(folder / "metrics.jsonl")
    assert line["test_loss"] is None
    assert "test_loss" in line["not_finite"]
    summary = json.loads((folder / "summary.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    assert "training diverged" in summary["diverged"]
    before = contents(folder)
    with pytest.raises(DivergedError, match="last evaluation gave no finite numbers"):
        accord.resume(folder, data=data, model=model)
    assert contents(folder) == before
    for _ in range(2):  # also when the runs are there already
        result = accord.compare(
            ["fedavg"], sets=[*SMALL, *HUGE, "partition.test=shared", f"out={tmp_path}", "name=c"], seeds=[0],
            data=data, model=model,
        )  # fmt: skip
        assert ["diverged" in reason for reason in result.failed.values()] == [True]
        assert not result.rows


def test_the_exit_code_of_a_diverged_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = diverging()
    from accord.engine import run as engine

    real = engine.run
    monkeypatch.setattr(engine, "run", lambda c, observers=(): real(c, data=data, model=model, observers=observers))
    words = [w for s in [*SMALL, *HUGE, "partition.test=shared", f"out={tmp_path}"] for w in ("--set", s)]
    result = CliRunner().invoke(app, ["run", "-q", *words])
    assert result.exit_code == 1
    assert "error: " in result.output
    assert "training diverged" in result.output.replace("\n", " ")


@pytest.mark.parametrize("file", ["identity.json", "config.toml", ".lock"])
def test_a_full_disk_at_the_very_first_files_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    real = os.open

    def no_room(path: Any, *rest: Any, **more: Any) -> int:
        if file in str(path) and str(tmp_path) in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, *rest, **more)

    monkeypatch.setattr(files.os, "open", no_room)
    with pytest.raises(RunError, match="No space left on device"):
        accord.run(config(tmp_path))
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    assert len(accord.run(config(tmp_path)).metrics) == 3


def test_a_folder_that_a_killed_run_had_just_made_is_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    for name in (".lock", "identity.json", ".config.toml.77.tmp"):
        (folder / name).write_text("half a fi")
    assert abandoned(folder)
    accord.run(config(tmp_path))
    assert not abandoned(folder)
    with pytest.raises(ConfigError, match="exists already"):
        accord.run(config(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigError, match="exists already"):
        accord.run(config(tmp_path, "name=mine"))
    result = accord.compare(["fedavg"], sets=[*SMALL, f"out={tmp_path}", "name=c"], seeds=[0])
    shutil.rmtree(result.folder / "fedavg-0")
    (result.folder / "fedavg-0").mkdir()
    (result.folder / "fedavg-0" / "identity.json").write_text("{")
    assert accord.compare(["fedavg"], sets=[*SMALL, f"out={tmp_path}", "name=c"], seeds=[0]).failed == {}


def test_other_versions_are_named_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = accord.run(config(tmp_path / "whole"))
    real = Checkpoints.save

    def older(self: Checkpoints, snapshot: Any, store: Any, versions: dict[str, str]) -> None:
        real(self, snapshot, store, {**versions, "torch": "1.0.0", "numpy": "0.1"})
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", older)
    with pytest.raises(KeyboardInterrupt):
        accord.run(config(tmp_path))
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=r"round 1 was made with.*torch '1\.0\.0' \(now .*goes on"):
        resumed = accord.resume(tmp_path / "x")
    assert resumed.metrics == whole.metrics
    notes = (tmp_path / "x" / "notes.txt").read_text()
    assert "numpy '0.1'" in notes
    assert "accord" not in notes


def test_changed_settings_are_refused_before_the_first_checkpoint_too(tmp_path: Path) -> None:
    folder = accord.run(config(tmp_path)).folder
    for gone in ("metrics.jsonl", "timings.jsonl", "summary.json"):
        (folder / gone).unlink()
    shutil.rmtree(folder / "checkpoint")
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("lr = 0.05", "lr = 0.06", 1))
    assert (folder / "config.toml").read_text() != text
    with pytest.raises(CheckpointError, match=r"config\.toml has other settings"):
        accord.resume(folder)


@pytest.mark.parametrize("given", [(np.zeros((4, 2)), np.zeros(4)), np.zeros((4, 2)), [1], {"x": 1}])
def test_arrays_as_data_are_told_how(tmp_path: Path, given: Any) -> None:
    with pytest.raises(ConfigError, match=r"accord\.from_arrays\(x, y\)"):
        accord.run(config(tmp_path), data=given)


def test_sparse_data_gets_its_sentence() -> None:
    from accord.data.federated import Pool

    x, y = torch.eye(6), torch.arange(6) % 2
    with pytest.raises(DataError, match=r"x is a sparse tensor .*to_dense"):
        accord.from_arrays(x.to_sparse(), y)
    with pytest.raises(DataError, match="sparse tensor"):
        Pool(x.to_sparse(), y)
    with pytest.raises(DataError, match="test y is a sparse tensor"):
        accord.from_arrays(x, y, test=(x, y.to_sparse()))
