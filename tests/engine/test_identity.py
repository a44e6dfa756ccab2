"""A run goes on with the data and the network it began with, or not at all."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import accord
from accord.data.federated import Dataset, Groups
from accord.engine import identity
from accord.errors import CheckpointError, DataError
from accord.settings import Source
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


def test_every_difference_of_data_is_another_identity() -> None:
    data = tiny_data(sizes=(2, 3))
    known = identity.data_identity(data)
    assert not {"task", "client_names", "columns_and_classes"} & known.keys()
    assert (known["name"], known["classes"], known["unseen"]) == ("tiny", 3, [])

    def differing(**changes: Any) -> set[str]:
        found = identity.data_identity(replace(data, **changes))
        return {name for name in found if found.get(name) != known.get(name)}

    pool = data.train_pool
    one, other = Groups.of([[0, 1], [2, 3]]), Groups.of([[4], []])
    assert differing(test_pool=replace(pool, x=pool.x + 1)) == {"test_values"}
    assert differing(test_pool=replace(pool, y=1 - pool.y)) == {"test_values"}
    assert differing(train_pool=replace(pool, y=1 - pool.y)) == {"train_values"}
    assert differing(train_pool=replace(pool, mean=(0.5,), std=(1.0,))) == {"train_values"}
    assert differing(train_pool=replace(pool, x=pool.x.double())) == {"train_values"}
    for part in ("train", "validation", "test"):
        for groups in (one, other):
            assert differing(**{part: groups}) == {"division"}
    assert differing(unseen=frozenset({1})) == {"unseen"}
    assert differing(names=("Aix", "Lyon")) == {"client_names"}
    assert differing(problem="tokens") == {"task"}
    assert differing(name="other") == {"name"}
    assert differing(raw=data.inputs) == {"columns_and_classes"}
    first, second = (identity.data_identity(replace(data, raw=data.inputs, classes=c)) for c in (("a",), ("b",)))
    assert first["columns_and_classes"] != second["columns_and_classes"]
    units = [SimpleNamespace(to_json=lambda unit=unit: {"age": unit}) for unit in ("years", "months")]
    years, months = (identity.data_identity(replace(data, raw=one)) for one in units)  # type: ignore[arg-type]
    assert years["columns_and_classes"] != months["columns_and_classes"]
    assert identity.data_identity(replace(data, unseen=frozenset({1, 0})))["unseen"] == [0, 1]


def test_what_an_owner_froze_is_recorded_with_its_values() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    given = accord.adapt(layers, head="2")
    assert identity.network_identity(given, (2,))["fixed"] == []
    layers[1].eval()
    layers[2].bias.requires_grad_(False).fill_(3.0)

    def short(tensor: Tensor) -> str:
        return hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()[:16]

    statistics = [
        f"module.1.running_mean {short(torch.zeros(2))}",
        f"module.1.running_var {short(torch.ones(2))}",
        f"module.1.num_batches_tracked {short(torch.zeros(1, dtype=torch.int64))}",
    ]
    found = identity.network_identity(given, (2,))
    assert found["fixed"] == ["module.1", f"module.2.bias {short(torch.full((2,), 3.0))}", *statistics]
    assert given.get_parameter("module.2.bias").tolist() == [3.0, 3.0], "only a copy is tried"
    assert not given.get_submodule("module.1").training
    assert given.get_submodule("module.0").training


def test_answers_are_those_of_evaluation_and_draw_nothing() -> None:

    class Drawing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.rand(1)
            return x

    given = accord.adapt(nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), Drawing(), nn.Linear(5, 8)), head="3")
    answers = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        next_one = torch.rand(1)
        torch.manual_seed(seed)
        answers.append(identity.network_identity(given, (6,))["answers"])
        assert torch.equal(torch.rand(1), next_one)
    assert answers[0] == answers[1]
    assert given.training


def test_token_ids_are_tried_as_such() -> None:
    """Zeros and ones, as the numbers drawn are below a half or above; another row for each."""

    class Rows(nn.Module):
        head_name, map_shape, num_features = "head", None, 1

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(1, 1)

        def logits_and_features(self, x: Tensor, fuse: Any = None) -> tuple[Tensor, Tensor]:
            assert x.dtype == torch.int64
            return x.double(), x.double()

    generator = torch.Generator().manual_seed(0)
    torch.rand((1,), generator=generator)  # the bias
    torch.rand((1, 1), generator=generator)  # the weight
    tokens = (torch.rand((2, 8), generator=generator) > 0.5).double()
    assert 0 < float(tokens.mean()) < 1
    found = identity.network_identity(Rows(), (8,), whole=True)["answers"]
    assert found == tokens.flatten().tolist()


def test_the_kind_of_inputs_reaches_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(identity, "network_identity", lambda *given: asked.append(given))
    data = tiny_data(sizes=(2, 3))
    model: Any = SimpleNamespace(network="network", fields="fields")
    source = Source("a.module", "package", "1.0")
    found = identity.identity(data, model, "the hash", {"algorithm mine": source})
    words = replace(data, train_pool=replace(data.train_pool, x=data.train_pool.x.long()))
    identity.identity(words, model, "", {})
    assert asked == [("network", (1, 8, 8), False, "fields"), ("network", (1, 8, 8), True, "fields")]
    assert found["settings"] == {"hash": "the hash"}
    assert found["plugins"]["algorithm mine"]["version"] == "1.0"


def test_no_row_of_a_long_tensor_is_passed_over() -> None:
    rows = torch.arange(9000).reshape(9000, 1)
    assert b"".join(identity._bytes(rows)) == rows.numpy().tobytes()
    assert b"".join(identity._bytes(torch.zeros(0, 3))) == b""
    assert b"".join(identity._bytes(torch.zeros(3, 0))) == b""


def test_of_plugins_all_that_are_needed_are_looked_for(tmp_path: Path) -> None:
    """One of a kind that this version does not know is nobody's loss; the others are asked for all the same."""
    source = {"module": "a.module", "package": "their-package", "version": "1.0"}
    plugins = {"colour blue": source, "algorithm nobodys": source}
    identity.keep(tmp_path, {"plugins": plugins})
    with pytest.raises(CheckpointError, match=r"needs the algorithm 'nobodys', .* install their-package 1\.0, or"):
        identity.check_plugins(tmp_path)
    identity.keep(tmp_path, {"plugins": {"colour blue": source}})
    identity.check_plugins(tmp_path)


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
        ({"settings": {"hash": "0", "traces": "abc"}}, "has other settings than this run began with"),
    ):
        with pytest.raises(CheckpointError, match=words):
            identity.compare(tmp_path, {**known, **change})
    identity.keep(tmp_path, {**known, "network": {"layers": ["x"]}})
    with pytest.raises(CheckpointError, match="computes something else"):  # than what nobody has noted
        identity.compare(tmp_path, known)
    (tmp_path / identity.FILE).write_text('{"data": 3}')
    with pytest.raises(CheckpointError, match=r"its data is not recorded; its network is not recorded"):
        identity.compare(tmp_path, known)
    (tmp_path / identity.FILE).write_text("[]")
    with pytest.raises(CheckpointError, match=r"identity\.json cannot be read"):
        identity.compare(tmp_path, known)
