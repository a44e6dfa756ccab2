"""A run goes on with the data and the network it began with, or not at all."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import accord
from accord.data.federated import Dataset
from accord.engine import identity
from accord.errors import CheckpointError, DataError
from support.federation import tiny_data


def xrays(samples: int = 60, shift: float = 0.0) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, 6)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    return accord.from_arrays(x + np.float32(shift), y, name="xrays", seed=0)


class Net(nn.Module):
    def __init__(self, activation: Any = torch.relu, layers: int = 1, classes: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.more = nn.ModuleList(nn.Linear(5, 5) for _ in range(layers - 1))
        self.fc = nn.Linear(5, classes)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.first(x))
        for layer in self.more:
            x = self.activation(layer(x))
        return self.fc(x)


def network(**changes: Any) -> nn.Module:
    torch.manual_seed(3)
    return accord.adapt(Net(**changes), head="fc")


def frozen(given: nn.Module) -> nn.Module:
    """With a first layer that stays as it is."""
    given.get_submodule("module.first").requires_grad_(False)
    return given


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run of four rounds that was stopped after two."""

    class Stop(accord.Observer):
        def round_ended(self, round: int, record: Any) -> None:
            if round == 2:
                raise KeyboardInterrupt

    config = accord.load_config(
        sets=[
            "rounds=4",
            "partition.name=iid",
            "partition.clients=3",
            "executor=sequential",
            f"out={tmp_path}",
            "partition.test=holdout",
        ]
    )
    with pytest.raises(KeyboardInterrupt):
        accord.run(config, data=xrays(), model=network(), observers=[Stop()])
    (folder,) = tmp_path.iterdir()
    return folder


def test_own_data_gives_the_run_its_name(stopped: Path) -> None:
    assert stopped.name == "fedavg-xrays-s0"
    outcome = accord.resume(stopped, data=xrays(), model=network())
    assert outcome.summary["dataset"] == "xrays"


@pytest.mark.parametrize(
    ("data", "model", "words"),
    [
        (lambda: xrays(shift=1e-3), network, "data train values differ"),
        (lambda: xrays(samples=30), network, "data train_samples was"),
        (lambda: replace(xrays(), classes=tuple("abc")), lambda: network(classes=3), "data classes was 2, is 3"),
        (xrays, lambda: frozen(network()), "network fixed: nothing became .*first.weight"),
        (xrays, lambda: network(activation=nn.functional.gelu), "computes something else"),
        (xrays, lambda: network(layers=2), "became"),
    ],
)
def test_other_data_and_other_networks_are_refused(stopped: Path, data: Any, model: Any, words: str) -> None:
    before = (stopped / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match=words):
        accord.resume(stopped, data=data and data(), model=model() if data else None)
    assert (stopped / "metrics.jsonl").read_bytes() == before


def test_data_that_was_handed_over_must_be_given_again(stopped: Path) -> None:
    assert 'name = "given"' in (stopped / "config.toml").read_text()
    with pytest.raises(DataError, match=r"handed over in Python.*accord.resume\(folder, data=...\)"):
        accord.resume(stopped)


def test_frozen_weights_must_be_the_same(tmp_path: Path) -> None:
    config = accord.load_config(
        sets=["rounds=2", "partition.name=iid", "partition.clients=3", "executor=sequential", f"out={tmp_path}"]
    )
    outcome = accord.run(config, data=xrays(), model=frozen(network()))
    accord.resume(outcome.folder, data=xrays(), model=frozen(network()))
    torch.manual_seed(99)
    with pytest.raises(CheckpointError, match="network fixed"):
        accord.resume(outcome.folder, data=xrays(), model=frozen(accord.adapt(Net(), head="fc")))


def test_other_weights_are_the_checkpoints_business(stopped: Path) -> None:
    torch.manual_seed(99)
    other = accord.adapt(Net(), head="fc")
    again = accord.resume(stopped, data=xrays(), model=other)
    assert len(again.metrics) == 4


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100000])
def test_a_run_without_a_record_of_its_data_is_not_guessed_at(stopped: Path, text: str) -> None:
    (stopped / "identity.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"identity\.json|is not recorded"):
        accord.resume(stopped, data=xrays(), model=network())


def test_answers_by_hand() -> None:
    """The record outlives versions, so what is drawn is fixed: matrices within 1 / sqrt(inputs), vectors above 1."""
    network = accord.adapt(nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 10)), head="3")
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    first_bias, first = 1 + 0.1 * drawn(3), (2 * drawn(3, 6) - 1) / 6**0.5
    last_bias, last = 1 + 0.1 * drawn(10), (2 * drawn(10, 3) - 1) / 3**0.5
    x = drawn(2, 1, 6)
    logits = torch.tanh(x.flatten(1) @ first.T + first_bias) @ last.T + last_bias
    found = identity.network_identity(network, (1, 6))
    assert found["answers"] == pytest.approx(logits.flatten()[:16].tolist(), abs=2e-6)
    assert len(found["answers"]) == 16
    assert found["layers"][-1].endswith("3: Linear(in_features=3, out_features=10, bias=True)")
    assert found["values"][0].endswith("weight (3, 6) torch.float32")


def test_digests_by_hand() -> None:
    """Kind, shape and normalisation of a pool, then its bytes; offsets and order of each group."""
    data = tiny_data(sizes=(2, 3))
    found = identity.data_identity(data)
    x, y = data.train_pool.x, data.train_pool.y
    said = repr(("torch.float32", (5, 1, 8, 8), (), ())).encode()
    assert found["train_values"] == hashlib.sha256(said + x.numpy().tobytes() + y.numpy().tobytes()).hexdigest()
    offsets, order = np.array([0, 2, 5]), np.arange(5)
    held = offsets.tobytes() + order.tobytes()
    nothing = np.zeros(3, np.int64).tobytes()
    assert found["division"] == hashlib.sha256(held + nothing + held).hexdigest()
    assert found["changed_inputs"] == hashlib.sha256().hexdigest()
    assert (found["train_samples"], found["test_samples"], found["clients"], found["sample"]) == (5, 5, 2, [1, 8, 8])
    turned = replace(data, transform=lambda client, index, x: x + client + index[0])
    seen = [x[:1] + 0 + 0, x[2:3] + 1 + 2]
    whole = hashlib.sha256(b"".join(t.numpy().tobytes() for t in seen)).hexdigest()
    assert identity.data_identity(turned)["changed_inputs"] == whole


def test_no_row_of_a_long_tensor_is_passed_over() -> None:
    rows = torch.arange(9000).reshape(9000, 1)
    assert b"".join(identity._bytes(rows)) == rows.numpy().tobytes()
    assert b"".join(identity._bytes(torch.zeros(0, 3))) == b""
    assert b"".join(identity._bytes(torch.zeros(3, 0))) == b""


def test_what_differs_is_said(tmp_path: Path) -> None:
    known = {
        "data": {"name": "a", "unseen": [1, 2, 3, 4]},
        "network": {"answers": [0.5, None], "layers": ["x"]},
        "settings": {"hash": "0"},
    }
    identity.keep(tmp_path, known)
    identity.compare(tmp_path, known)
    near = {**known, "network": {"answers": [0.504, None], "layers": ["x"]}}
    identity.compare(tmp_path, near)
    for change, words in (
        ({"data": {"name": "b", "unseen": [1, 2, 3, 4]}}, "data name was 'a', is 'b'"),
        ({"data": {"name": "a", "unseen": [7, 8, 9]}}, r"data unseen: \[1, 2\] became \[7, 8\]"),
        ({"data": {"name": "a", "unseen": [1, 2, 3]}}, r"data unseen: \[4\] became nothing"),
        ({"network": {"answers": [0.53, None], "layers": ["x"]}}, "computes something else"),
        ({"network": {"answers": [0.5, 0.5], "layers": ["x"]}}, "computes something else"),
        ({"network": {"answers": [0.5], "layers": ["x"]}}, "computes something else"),
        ({"data": {"name": "a" * 64, "unseen": [1, 2, 3, 4]}}, "data name differ"),
        ({"settings": {"hash": "1"}}, "has other settings than this run began with"),
    ):
        with pytest.raises(CheckpointError, match=words):
            identity.compare(tmp_path, {**known, **change})
    (tmp_path / identity.FILE).write_text('{"data": 3}')
    with pytest.raises(CheckpointError, match=r"its data is not recorded; its network is not recorded"):
        identity.compare(tmp_path, known)
    (tmp_path / identity.FILE).write_text("[]")
    with pytest.raises(CheckpointError, match=r"identity\.json cannot be read"):
        identity.compare(tmp_path, known)
