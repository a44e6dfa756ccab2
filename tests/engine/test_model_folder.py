"""Which values go into which file of a model's folder: the global model's, what is common, what is a client's own."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load

from accord.core.fields import Field, Fields
from accord.core.model import Model
from accord.core.tensors import Tree, clone
from accord.core.whole import Whole, as_given, named_values
from accord.engine import model_folder
from accord.engine.model_folder import (
    _files,
    _record,
    _trained_network,
    _untrained,
    described,
    read_model,
    write_model,
)
from accord.errors import RunError
from accord.models import adapt
from support.federation import TinyRun, tiny_model

MODEL = tiny_model()


def files(module: Any, found: dict[int, Tree], network: Any = MODEL.network) -> tuple[dict[str, Tree], dict[str, Any]]:
    """What is in every file, and the record; of clients called a, b, ..."""
    record: dict[str, Any] = {"weights": None, "shared": None, "clients": {}}
    names = {client: chr(97 + client) for client in found}
    subject: Any = SimpleNamespace(model=module, network=network, clients=names)
    buffers = MODEL.init()[1]
    own: Any = SimpleNamespace(
        task=SimpleNamespace(model=MODEL),
        found={client: {"model": tree, "buffers": buffers} for client, tree in found.items()},
    )
    written = dict(_files(subject, own, record))
    for name, data in written.items():
        noted = record["weights"] if name == "model.safetensors" else record["shared"]
        if name.startswith("clients/"):
            (noted,) = [e["sha256"] for e in record["clients"].values() if f"clients/{e['file']}" == name]
        assert noted == hashlib.sha256(data).hexdigest()
    return {name: load(data) for name, data in written.items()}, record


def moved(params: Tree, *names: str) -> Tree:
    return {name: value + 1 if name in names else value.clone() for name, value in params.items()}


def test_clients_keep_what_differs_from_the_global_model() -> None:
    params, buffers = MODEL.init()
    first, *_ = params
    found, record = files(MODEL.module(clone(params), buffers), {0: moved(params, first), 1: moved(params)})
    assert list(found) == ["model.safetensors", "clients/a.safetensors", "clients/b.safetensors"]
    assert found["model.safetensors"].keys() == params.keys()
    assert all(torch.equal(found["model.safetensors"][name], value) for name, value in params.items())
    assert found["clients/a.safetensors"].keys() == {first}
    assert torch.equal(found["clients/a.safetensors"][first], params[first] + 1)
    assert found["clients/b.safetensors"] == {}
    assert {name: (e["number"], e["file"]) for name, e in record["clients"].items()} == {
        "a": (0, "a.safetensors"),
        "b": (1, "b.safetensors"),
    }
    assert record["shared"] is None


def test_a_clients_running_statistics_are_in_its_file() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
    model = Model(adapt(layers, head="2"))
    params, buffers = model.init()
    trained = {**buffers, "module.1.running_mean": torch.tensor([3.0, 4.0])}
    subject: Any = SimpleNamespace(model=model.module(params, buffers), network=model.network, clients={4: "a"})
    own: Any = SimpleNamespace(task=SimpleNamespace(model=model), found={4: {"model": params, "buffers": trained}})
    record: dict[str, Any] = {"clients": {}}
    found = {name: load(data) for name, data in _files(subject, own, record)}
    assert {name: t.tolist() for name, t in found["clients/a.safetensors"].items()} == {"1.running_mean": [3.0, 4.0]}
    assert record["clients"]["a"]["number"] == 4
    layers[1].eval()
    still = Model(adapt(layers, head="2"))
    common = _untrained(as_given(still.network))
    assert set(common) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


class Around(Whole):
    kind = "around"


def test_what_is_recorded_of_a_model() -> None:
    """Of what is around it the whole; the numbers' own type, whatever the default is; what it takes to read inputs."""
    inputs = Fields((Field("word", (3,), 9), Field("size", ())))
    data = SimpleNamespace(inputs=SimpleNamespace(to_json=lambda: {"kind": "rows"}), vocabulary=7, fields=inputs)
    data.__dict__.update(problem="tokens", num_classes=4, classes=("a", "b"), name="texts", sample_shape=(3,))
    model_config = SimpleNamespace(name="mlp", options={"hidden": (5, 6), "norm": "group"})
    config = SimpleNamespace(algorithm=SimpleNamespace(name="fedprox"), model=model_config)
    federation = SimpleNamespace(data=data, config=config, own_network=False)
    network = torch.nn.Linear(1, 1).double()
    subject: Any = SimpleNamespace(federation=federation, network=network, model=Around(network))
    found = _record(subject)
    assert (found["around"], found["dtype"]) == ([{"kind": "around"}], "float64")
    assert found["network"] == {
        **{"kind": "named", "name": "mlp", "input_shape": [3]},
        "settings": {"hidden": [5, 6], "norm": "group"},
    }
    assert found["facts"] == {
        "vocabulary": 7,
        "fields": [
            {"name": "word", "shape": [3], "vocabulary": 9},
            {"name": "size", "shape": [], "vocabulary": 0},
        ],
    }
    said = {name: found[name] for name in ("inputs", "problem", "outputs", "classes", "method", "data")}
    assert said == {
        **{"inputs": {"kind": "rows"}, "problem": "tokens", "outputs": 4, "classes": ["a", "b"]},
        **{"method": "fedprox", "data": "texts"},
    }
    assert (found["weights"], found["shared"], found["clients"]) == (None, None, {})
    subject.model, data.fields = None, None
    assert (_record(subject)["around"], _record(subject)["facts"]["fields"]) == ([], None)


def test_an_owners_network_is_described_by_its_layers() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
    federation: Any = SimpleNamespace(own_network=True, config=SimpleNamespace(model=None))
    found = described(federation, Around(adapt(layers, head="1", maps="0")))
    assert found == {
        **{"kind": "own", "class": "Sequential", "head": "1", "maps": "0", "adapted": True},
        "layers": [
            "0: Linear(in_features=2, out_features=3, bias=True)",
            "1: Linear(in_features=3, out_features=2, bias=True)",
        ],
    }
    classifier = tiny_model().network
    plain = described(federation, classifier)
    assert (plain["adapted"], plain["class"], plain["maps"]) == (False, type(classifier).__name__, None)


def test_a_module_is_read_back_where_one_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    record: dict[str, Any] = {"weights": "the checksum", "shared": "another"}
    read: list[Any] = []
    monkeypatch.setattr(model_folder, "read_record", lambda folder: record)
    values = {name: t + 1 for name, t in named_values(MODEL.network).items()}
    monkeypatch.setattr(model_folder, "read_values", lambda *given: (read.append(given), values)[1])
    run = TinyRun("fedavg", model=MODEL)
    found = read_model(Path("x"), run.federation)
    assert found is not None
    assert all(torch.equal(t, values[name]) for name, t in named_values(found).items())
    assert read == [(Path("x/model/model.safetensors"), "the checksum")]
    record["weights"] = None
    assert read_model(Path("x"), run.federation) is None
    assert len(read) == 1


def test_the_network_that_was_trained_is_the_methods() -> None:
    run = TinyRun("fedavg")
    other = tiny_model(seed=5)
    federation: Any = SimpleNamespace(algorithm=run.algorithm, model=other)
    assert _trained_network(federation) is run.model.network
    federation.algorithm = SimpleNamespace(model=run.model)  # no `Method`: it may have no model at all
    assert _trained_network(federation) is other.network


def test_clients_are_written_in_the_order_of_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(model_folder, "_trained_network", lambda federation: "network")
    monkeypatch.setattr(model_folder, "_record", lambda subject: (seen.append(subject), {})[1])
    monkeypatch.setattr(model_folder, "_files", lambda *_: iter([("clients/a", b"")]))
    monkeypatch.setattr(model_folder, "card", lambda subject, summary, sites: f"{summary} {sites}")
    own: Any = SimpleNamespace(found={7: {}, 2: {}}, why_not="too large")
    federation: Any = SimpleNamespace(data=SimpleNamespace(name_of=lambda client: f"site {client}"))
    synced: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        model_folder,
        "sync_folder",
        lambda path: synced.append((str(path.relative_to(tmp_path)), (tmp_path / "model").exists())),
    )
    write_model(tmp_path, federation, "module", own, "summary", "sites")  # type: ignore[arg-type]
    # all of it is on the disk before the rename, and the rename after it
    assert synced == [(".model.tmp/clients", False), (".model.tmp", False), (".", True)]
    (subject,) = seen
    assert list(subject.clients.items()) == [(2, "site 2"), (7, "site 7")]
    assert (subject.network, subject.model, subject.why_not) == ("network", "module", "too large")
    assert (tmp_path / "model" / "README.md").read_text() == "summary sites"
    (tmp_path / "elsewhere").mkdir()
    for name in ("model", ".model.tmp"):
        place = tmp_path / name
        shutil.rmtree(place, ignore_errors=True)
        place.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(RunError, match="is a symbolic link"):
            write_model(tmp_path, federation, None, own, {}, None)
        place.unlink()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_without_a_global_model_what_nobody_trains_is_common() -> None:
    params, _ = MODEL.init()
    whole, record = files(None, {0: moved(params)})
    assert list(whole) == ["clients/a.safetensors"]
    assert whole["clients/a.safetensors"].keys() == params.keys()
    assert (record["weights"], record["shared"]) == (None, None)
    frozen = tiny_model().network
    fixed = next(name for name, _ in frozen.named_parameters())
    frozen.get_parameter(fixed).requires_grad_(False)
    found, record = files(None, {0: moved(params)}, frozen)
    assert list(found) == ["shared.safetensors", "clients/a.safetensors"]
    assert found["shared.safetensors"].keys() == {fixed}
    assert found["clients/a.safetensors"].keys() == params.keys() - {fixed}
    assert record["weights"] is None
