"""A model's folder may be somebody else's: whatever is wrong with it is said in a sentence, and nothing is run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

import accord
from accord.errors import AccordError
from support.leaving import finished

Record = dict[str, Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("runs"), "algorithm.name=ditto").folder / "model"


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def changed(folder: Path, change: Callable[[Record], object]) -> None:
    """The record, otherwise."""
    record = json.loads((folder / "model.json").read_text())
    change(record)
    (folder / "model.json").write_text(json.dumps(record))


def weights(folder: Path, data: bytes) -> None:
    """Other bytes in the place of the model's values, with a checksum that fits."""
    (folder / "model.safetensors").write_bytes(data)
    changed(folder, lambda record: record.update(weights=hashlib.sha256(data).hexdigest()))


def refused(folder: Path, match: str, client: str | None = None) -> None:
    began = time.perf_counter()
    with pytest.raises(AccordError, match=match) as caught:
        accord.load(folder, client)
    assert len(str(caught.value)) < 1500
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda r: r.update(format=2), "format 2, this version reads format 1"),
        (lambda r: r.update(more=1), "unknown field 'more'"),
        (lambda r: r.pop("inputs"), "no field 'inputs'"),
        (lambda r: r.update(weights="0" * 64), "checksum differs"),
        (lambda r: r.update(weights="../../x"), "64 hexadecimal digits"),
        (lambda r: r.update(dtype="float32; import os"), "a kind of real numbers"),
        (lambda r: r.update(problem="magic"), r"the problem is 'magic'; known are .*classification"),
        (lambda r: r.update(classes=["a"]), "1 names do not fit 3 outputs"),
        (lambda r: r.update(outputs=10**12), "would take|outputs|classes|names do not fit"),
        (lambda r: r["network"].update(kind="pickle"), "the kind 'pickle'; known are 'named' and 'own'"),
        (lambda r: r["network"].update(name="os.system"), "'os.system' is not known here"),
        (lambda r: r["network"].update(settings={"hidden": [10**9]}), "would take .* bytes, and its values are"),
        (lambda r: r["network"].update(settings={"hidden": "six"}), "hidden"),
        (lambda r: r["network"].update(settings={"evil": 1}), "evil"),
        (lambda r: r["network"].update(settings={"hidden": [7]}), "does not fit the network"),
        (lambda r: r["network"].update(input_shape=[1, 10**6, 10**6]), "would take .* bytes"),
        (lambda r: r["network"].update(input_shape=[-1]), "whole numbers"),
        (lambda r: r["around"].append({"kind": "exec"}), "around the network is 'exec'; known are fusion"),
        (lambda r: r["around"].append({"kind": "fusion", "operator": "conv"}), "set in a way it cannot be"),
        (
            lambda r: r["around"].append({"kind": "fusion", "operator": "conv", "channels": 10**6, "received": False}),
            "would take",
        ),
        (
            lambda r: r["around"].append({"kind": "relations", "size": 8, "features": 6, "hops": 10**9}),
            "must be whole numbers from 1",
        ),
        (lambda r: r["around"].append({"kind": "unit_head", "at": "nowhere"}), "should be a linear layer"),
        (lambda r: r["inputs"].update(kind="pickle"), "inputs must be one of"),
        (lambda r: r["inputs"].update(shape=[10**9, 10**9]), "the shape of a sample"),
    ],
)
def test_a_record_that_lies(folder: Path, change: Callable[[Record], object], match: str) -> None:
    changed(folder, change)
    refused(folder, match)


@pytest.mark.parametrize(
    "name", ["../../secret.safetensors", "/etc/passwd", ".hidden.safetensors", "a/b.safetensors", 7]
)
def test_a_clients_file_is_in_its_folder(folder: Path, name: object) -> None:
    changed(folder, lambda record: record["clients"]["Lyon"].update(file=name))
    refused(folder, "its number, its file and the file's sha256", "Lyon")


def test_values_that_are_others(folder: Path) -> None:
    good = load_file(folder / "model.safetensors")
    first = next(iter(good))
    for broken, match in (
        ({name: t for name, t in good.items() if name != first}, "is missing in it"),
        ({**good, "more": torch.zeros(1)}, "'more' is which this network does not have|does not have"),
        ({**good, first: torch.full_like(good[first], float("nan"))}, "infinite or no numbers"),
        ({**good, first: torch.full_like(good[first], float("inf"))}, "infinite or no numbers"),
        ({**good, first: good[first][:1].clone()}, "the network wants"),
        ({**good, first: good[first].double()}, r"torch\.float64"),
    ):
        weights(folder, save(broken))
        refused(folder, match)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95pickle",
        (1 << 40).to_bytes(8, "little") + b"{}",
        (1 << 63).to_bytes(8, "little"),
        (20).to_bytes(8, "little") + b'{"a":{"dtype":"F32"}',
        (66).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}'[:66],
        os.urandom(200),
    ],
)
def test_bytes_that_are_no_values(folder: Path, data: bytes) -> None:
    weights(folder, data)
    refused(folder, "model.safetensors (is no safetensors file|has a header)")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1, "format": 1}', '{"a": NaN}', "[" * 10000, "\udcff"])
def test_a_record_that_is_none(folder: Path, text: str) -> None:
    (folder / "model.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(folder, r"model\.json")


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    for name, client in (("model.safetensors", None), ("model.json", None), ("clients", "Lyon")):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
        refused(folder, "symbolic link", client)
        (folder / name).unlink()
        (tmp_path / name).rename(folder / name)
    accord.load(folder, "Lyon")
    run = tmp_path / "run"
    run.mkdir()
    (run / "model").symlink_to(folder)
    refused(run, "symbolic link")


def test_pipes_and_folders_in_the_place_of_files(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    refused(folder, "no plain file|cannot read")
    (folder / "model.json").unlink()
    (folder / "model.json").mkdir()
    refused(folder, "no plain file|cannot read")


def test_nothing_at_all(tmp_path: Path) -> None:
    refused(tmp_path, "there is no model in")
    refused(tmp_path / "nowhere", "there is no model in")
